"""The grader behind the course "The Transformer, from the dot product up"."""
