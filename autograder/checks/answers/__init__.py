"""Catalogues of right and wrong answers, one module per chapter."""
