"""Chapter 3: right answers that look different, and the mistakes learners make."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from autograder.checks.catalogue import right, wrong

# ---- dot_product_moments --------------------------------------------------------------------------------------


@wrong("products not summed", "a dot product adds up the d_k products of its two vectors; you kept the products apart")
def dot_product_moments(d_k, samples, generator):
    q = torch.randn(samples, d_k, generator=generator)
    k = torch.randn(samples, d_k, generator=generator)
    return (q * k).mean().item(), (q * k).var().item()


@wrong("summed over the samples", "you summed over the samples; the dot product sums over the d_k features of one pair")
def dot_product_moments(d_k, samples, generator):
    q = torch.randn(samples, d_k, generator=generator)
    k = torch.randn(samples, d_k, generator=generator)
    scores = (q * k).sum(dim=0)
    return scores.mean().item(), scores.var(correction=0).item()


@wrong("averaged over the features", "a dot product is the sum over the features, not their mean")
def dot_product_moments(d_k, samples, generator):
    q = torch.randn(samples, d_k, generator=generator)
    k = torch.randn(samples, d_k, generator=generator)
    scores = (q * k).mean(dim=1)
    return scores.mean().item(), scores.var().item()


@wrong("already scaled", "you divided by sqrt(d_k) already: here the raw dot product is measured")
def dot_product_moments(d_k, samples, generator):
    q = torch.randn(samples, d_k, generator=generator)
    k = torch.randn(samples, d_k, generator=generator)
    scores = (q * k).sum(dim=1) / math.sqrt(d_k)
    return scores.mean().item(), scores.var().item()


@wrong("standard deviation", "you returned the standard deviation; its square, the variance, is asked for")
def dot_product_moments(d_k, samples, generator):
    q = torch.randn(samples, d_k, generator=generator)
    k = torch.randn(samples, d_k, generator=generator)
    scores = (q * k).sum(dim=1)
    return scores.mean().item(), scores.std().item()


@wrong("swapped", "you returned (variance, mean); the order asked for is (mean, variance)")
def dot_product_moments(d_k, samples, generator):
    q = torch.randn(samples, d_k, generator=generator)
    k = torch.randn(samples, d_k, generator=generator)
    scores = (q * k).sum(dim=1)
    return scores.var().item(), scores.mean().item()


@wrong("uniform draws", "torch.rand draws uniformly between 0 and 1, with mean 1/2; standard normal is torch.randn")
def dot_product_moments(d_k, samples, generator):
    q = torch.rand(samples, d_k, generator=generator)
    k = torch.rand(samples, d_k, generator=generator)
    scores = (q * k).sum(dim=1)
    return scores.mean().item(), scores.var().item()


@wrong("k is q", "you used the same draws for q and k; they must be independent, or q·k is the squared norm")
def dot_product_moments(d_k, samples, generator):
    q = torch.randn(samples, d_k, generator=generator)
    scores = (q * q).sum(dim=1)
    return scores.mean().item(), scores.var().item()


@wrong("every q with every k", "you paired every q with every k, so the dot products are not independent draws")
def dot_product_moments(d_k, samples, generator):
    q = torch.randn(samples, d_k, generator=generator)
    k = torch.randn(samples, d_k, generator=generator)
    scores = q @ k.T
    return scores.mean().item(), scores.var().item()


@wrong(
    "global generator",
    "the numbers do not come from the given generator alone: pass generator=generator to every call of torch.randn",
)
def dot_product_moments(d_k, samples, generator):
    q = torch.randn(samples, d_k)
    k = torch.randn(samples, d_k)
    scores = (q * k).sum(dim=1)
    return scores.mean().item(), scores.var().item()


@wrong("generator ignored", "another generator gave exactly the same result: draw q and k from the generator you are given")
def dot_product_moments(d_k, samples, generator):
    own = torch.Generator().manual_seed(0)
    q = torch.randn(samples, d_k, generator=own)
    k = torch.randn(samples, d_k, generator=own)
    scores = (q * k).sum(dim=1)
    return scores.mean().item(), scores.var().item()


@wrong("predicted, not measured", "you returned what theory predicts; the exercise asks what the draws show")
def dot_product_moments(d_k, samples, generator):
    return 0.0, float(d_k)


@wrong("one key for all", "you drew a single key and compared every query with it; each pair needs a key of its own")
def dot_product_moments(d_k, samples, generator):
    q = torch.randn(samples, d_k, generator=generator)
    k = torch.randn(d_k, generator=generator)
    scores = q @ k
    return scores.mean().item(), scores.var().item()


@right("numbers")
def dot_product_moments(d_k, samples, generator):
    q = torch.randn(samples, d_k, generator=generator)
    k = torch.randn(samples, d_k, generator=generator)
    scores = (q * k).sum(dim=-1)
    return scores.mean().item(), scores.var().item()


@right("0-d tensors, biased estimator")
def dot_product_moments(d_k, samples, generator):
    q, k = torch.randn(2, samples, d_k, generator=generator)
    scores = torch.einsum("nd,nd->n", q, k)
    return scores.mean(), scores.var(correction=0)


@right("loop")
def dot_product_moments(d_k, samples, generator):
    draws = torch.empty(2, d_k, samples).normal_(generator=generator)
    scores = sum(draws[0, i] * draws[1, i] for i in range(d_k))
    mean = scores.sum() / samples
    return mean, ((scores - mean) ** 2).sum() / samples


@right("bmm, var_mean")
def dot_product_moments(d_k, samples, generator):
    q = torch.normal(0.0, 1.0, (samples, 1, d_k), generator=generator)
    k = torch.normal(0.0, 1.0, (samples, d_k, 1), generator=generator)
    variance, mean = torch.var_mean(torch.bmm(q, k))
    return float(mean), float(variance)


@right("float64, mean of squares")
def dot_product_moments(d_k, samples, generator):
    q = torch.randn((samples, d_k), generator=generator, dtype=torch.float64)
    k = torch.randn((samples, d_k), generator=generator, dtype=torch.float64)
    scores = (q * k).sum(1)
    return scores.mean(), (scores**2).mean() - scores.mean() ** 2


@right("matrix product's diagonal")
def dot_product_moments(d_k, samples, generator):
    means, squares, count = 0.0, 0.0, 0
    while count < samples:
        m = min(50, samples - count)
        q, k = torch.randn(m, d_k, generator=generator), torch.randn(m, d_k, generator=generator)
        scores = (q @ k.T).diagonal().double()
        means, squares, count = means + scores.sum().item(), squares + scores.square().sum().item(), count + m
    return means / samples, squares / samples - (means / samples) ** 2


@right("NumPy on torch's numbers")
def dot_product_moments(d_k, samples, generator):
    q, k = (torch.randn(samples, d_k, generator=generator).numpy() for _ in range(2))
    scores = np.einsum("ij,ij->i", q, k)
    return np.mean(scores), np.var(scores, ddof=1)


@right("standard deviation squared")
def dot_product_moments(d_k, samples, generator):
    shape = (samples, d_k)
    scores = torch.linalg.vecdot(torch.randn(shape, generator=generator), torch.randn(shape, generator=generator))
    spread, mean = torch.std_mean(scores)
    return [mean.item(), spread.item() ** 2]


# ---- predicted_variance ---------------------------------------------------------------------------------------


@wrong("d_k alone", "d_k is right only for means 0 and variances 1: use the four other arguments")
def predicted_variance(d_k, mu_q=0.0, mu_k=0.0, var_q=1.0, var_k=1.0):
    return float(d_k)


@wrong("means left out", "the means matter: a product's variance grows when its factors are not centred")
def predicted_variance(d_k, mu_q=0.0, mu_k=0.0, var_q=1.0, var_k=1.0):
    return d_k * var_q * var_k


@wrong("second moment", "that is E[x^2]; the variance subtracts the squared mean, mu_q^2 mu_k^2 per product")
def predicted_variance(d_k, mu_q=0.0, mu_k=0.0, var_q=1.0, var_k=1.0):
    return d_k * (var_q + mu_q**2) * (var_k + mu_k**2)


@wrong("mean of the sum subtracted", "variances of independent products add up: subtract the squared mean per product, "
       "inside the factor d_k")
def predicted_variance(d_k, mu_q=0.0, mu_k=0.0, var_q=1.0, var_k=1.0):
    return d_k * (var_q + mu_q**2) * (var_k + mu_k**2) - mu_q**2 * mu_k**2


@wrong("standard deviation", "you returned the standard deviation; its square is asked for")
def predicted_variance(d_k, mu_q=0.0, mu_k=0.0, var_q=1.0, var_k=1.0):
    return math.sqrt(d_k * (var_q * var_k + var_q * mu_k**2 + var_k * mu_q**2))


@wrong("d_k squared", "the d_k products are independent, so their variances add up to a factor d_k, not d_k^2")
def predicted_variance(d_k, mu_q=0.0, mu_k=0.0, var_q=1.0, var_k=1.0):
    return d_k**2 * (var_q * var_k + var_q * mu_k**2 + var_k * mu_q**2)


@wrong("variances squared", "var_q and var_k are variances already, not standard deviations")
def predicted_variance(d_k, mu_q=0.0, mu_k=0.0, var_q=1.0, var_k=1.0):
    return d_k * ((var_q**2 + mu_q**2) * (var_k**2 + mu_k**2) - mu_q**2 * mu_k**2)


@wrong("means not squared", "the variance takes the squares of the means; a mean of -2 acts like a mean of 2")
def predicted_variance(d_k, mu_q=0.0, mu_k=0.0, var_q=1.0, var_k=1.0):
    return d_k * ((var_q + mu_q) * (var_k + mu_k) - mu_q * mu_k)


@wrong("cross terms swapped", "each mean goes with the other's variance: the cross terms are var_q mu_k^2 and var_k mu_q^2")
def predicted_variance(d_k, mu_q=0.0, mu_k=0.0, var_q=1.0, var_k=1.0):
    return d_k * (var_q * var_k + var_q * mu_q**2 + var_k * mu_k**2)


@wrong("scaled already", "you divided by d_k: that is the variance after scaling; here the raw dot product is meant")
def predicted_variance(d_k, mu_q=0.0, mu_k=0.0, var_q=1.0, var_k=1.0):
    return (var_q + mu_q**2) * (var_k + mu_k**2) - mu_q**2 * mu_k**2


@wrong("variances added", "the variance of a product is not the sum of the variances")
def predicted_variance(d_k, mu_q=0.0, mu_k=0.0, var_q=1.0, var_k=1.0):
    return d_k * (var_q + var_k)


@right("the formula")
def predicted_variance(d_k, mu_q=0.0, mu_k=0.0, var_q=1.0, var_k=1.0):
    return d_k * ((var_q + mu_q**2) * (var_k + mu_k**2) - mu_q**2 * mu_k**2)


@right("three terms")
def predicted_variance(d_k, mu_q=0.0, mu_k=0.0, var_q=1.0, var_k=1.0):
    return d_k * (var_q * var_k + var_q * mu_k**2 + var_k * mu_q**2)


@right("tensor")
def predicted_variance(d_k, mu_q=0.0, mu_k=0.0, var_q=1.0, var_k=1.0):
    second = (torch.tensor(mu_q) ** 2 + var_q) * (torch.tensor(mu_k) ** 2 + var_k)
    return d_k * (second - (torch.tensor(mu_q) * mu_k) ** 2)


@right("loop over features")
def predicted_variance(d_k, mu_q=0.0, mu_k=0.0, var_q=1.0, var_k=1.0):
    total = 0.0
    for _ in range(d_k):
        total += var_q * var_k + var_q * mu_k * mu_k + var_k * mu_q * mu_q
    return total


@right("second moment less the squared mean, by feature")
def predicted_variance(d_k, mu_q=0.0, mu_k=0.0, var_q=1.0, var_k=1.0):
    mean = mu_q * mu_k
    second = (var_q + mu_q * mu_q) * (var_k + mu_k * mu_k)
    return sum(second - mean * mean for _ in range(d_k))


@right("a NumPy array of features")
def predicted_variance(d_k, mu_q=0.0, mu_k=0.0, var_q=1.0, var_k=1.0):
    one = np.full(d_k, var_q * (var_k + mu_k**2) + var_k * mu_q**2)
    return one.sum()


@right("fractions")
def predicted_variance(d_k, mu_q=0.0, mu_k=0.0, var_q=1.0, var_k=1.0):
    from fractions import Fraction

    mu_q, mu_k, var_q, var_k = map(Fraction, (mu_q, mu_k, var_q, var_k))
    return float(d_k * (var_q * var_k + var_q * mu_k**2 + var_k * mu_q**2))


@right("a product of vectors")
def predicted_variance(d_k, mu_q=0.0, mu_k=0.0, var_q=1.0, var_k=1.0):
    return d_k * float(np.dot([var_q, var_q, mu_q**2], [var_k, mu_k**2, var_k]))


@wrong("one mean forgotten", "both means matter: mu_k^2 goes with var_q, and mu_q^2 with var_k")
def predicted_variance(d_k, mu_q=0.0, mu_k=0.0, var_q=1.0, var_k=1.0):
    return d_k * (var_q * var_k + var_q * mu_k**2)


# ---- softmax_jacobian -----------------------------------------------------------------------------------------


@wrong("softmax applied again", "p is softmax's output already; you took softmax of it once more")
def softmax_jacobian(p):
    p = p.softmax(-1)
    return torch.diag(p) - torch.outer(p, p)


@wrong("no diagonal", "the diagonal term is missing: a score also raises its own weight")
def softmax_jacobian(p):
    return -torch.outer(p, p)


@wrong("diagonal only", "a score also lowers every other weight: -p_i p_j is missing off the diagonal")
def softmax_jacobian(p):
    return torch.diag(p * (1 - p))


@wrong("only diag(p)", "p p^T is not subtracted: the rows should sum to zero")
def softmax_jacobian(p):
    return torch.diag(p)


@wrong("sign", "the signs are reversed: raising a score raises its own weight, so the diagonal is not negative")
def softmax_jacobian(p):
    return torch.outer(p, p) - torch.diag(p)


@wrong("plus", "the outer product is added; a rising score takes weight away from the others")
def softmax_jacobian(p):
    return torch.diag(p) + torch.outer(p, p)


@wrong("identity for diag(p)", "the diagonal term is p_i, not 1: put p on the diagonal, not the identity matrix")
def softmax_jacobian(p):
    return torch.eye(len(p), dtype=p.dtype) - torch.outer(p, p)


@wrong("sigmoid's derivative", "p(1 - p) is the derivative for one weight alone; J is a matrix of all pairs")
def softmax_jacobian(p):
    return p * (1 - p)


@wrong("diagonal twice", "p - p^2 is the whole diagonal; you subtracted p^2 there twice")
def softmax_jacobian(p):
    return torch.diag(p * (1 - p)) - torch.outer(p, p)


@wrong("inner product", "p p^T means the outer product, one entry per pair; p @ p is a single number")
def softmax_jacobian(p):
    return torch.diag(p) - p @ p


@wrong("broadcast", "p - p p^T subtracts the matrix from a row: p belongs on the diagonal only")
def softmax_jacobian(p):
    return p - torch.outer(p, p)


@wrong("float32 hard-coded", "the result should keep the dtype of p")
def softmax_jacobian(p):
    p = p.float()
    return torch.diag(p) - torch.outer(p, p)


@right("diag minus outer")
def softmax_jacobian(p):
    return torch.diag(p) - torch.outer(p, p)


@right("einsum")
def softmax_jacobian(p):
    return p.diag() - torch.einsum("i,j->ij", p, p)


@right("p times (I - p)")
def softmax_jacobian(p):
    return p[:, None] * (torch.eye(len(p), dtype=p.dtype) - p[None, :])


@right("loop")
def softmax_jacobian(p):
    n = p.shape[0]
    J = torch.zeros(n, n, dtype=p.dtype)
    for i in range(n):
        for j in range(n):
            J[i, j] = p[i] * (float(i == j) - p[j])
    return J


@right("autograd")
def softmax_jacobian(p):
    return torch.autograd.functional.jacobian(lambda s: torch.softmax(s, dim=0), torch.log(p))


@right("float64 inside")
def softmax_jacobian(p):
    q = p.double()
    return (torch.diag_embed(q) - q.unsqueeze(-1) * q.unsqueeze(-2)).to(p.dtype)


@right("vmap of the gradient")
def softmax_jacobian(p):
    return torch.func.jacrev(lambda s: s.softmax(-1))(p.log())


@right("row by row")
def softmax_jacobian(p):
    rows = []
    for i in range(p.numel()):
        row = -p[i] * p
        row[i] = p[i] * (1 - p[i])
        rows.append(row)
    return torch.stack(rows)


# ---- scaled_dot_product_attention -----------------------------------------------------------------------------


@wrong("no scale", "the scores are not scaled: divide Q K^T by sqrt(d_k) before the softmax")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = scores.softmax(-1)
    return weights @ V, weights


@wrong("divided by d_k", "the scores are divided by d_k; their standard deviation is sqrt(d_k), so divide by its root")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / Q.shape[-1]
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = scores.softmax(-1)
    return weights @ V, weights


@wrong("multiplied by sqrt(d_k)", "the scores are multiplied by sqrt(d_k); divide, or they grow even larger")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) * math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = scores.softmax(-1)
    return weights @ V, weights


@wrong("sqrt of the number of keys", "you divided by the root of the number of keys; d_k is the width of a key, K.shape[-1]")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(K.shape[-2])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = scores.softmax(-1)
    return weights @ V, weights


@wrong("sqrt of d_v", "you divided by the root of d_v, the width of a value; the scores grow with d_k, the width of a key")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(V.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = scores.softmax(-1)
    return weights @ V, weights


@wrong("scaled after the softmax", "you divided the weights, after the softmax: then a row sums to 1/sqrt(d_k), not to 1")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = scores.softmax(-1) / math.sqrt(Q.shape[-1])
    return weights @ V, weights


@wrong("softmax over queries", "the softmax runs over the queries; each query spreads one unit of weight over the keys, dim=-1")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = scores.softmax(-2)
    return weights @ V, weights


@wrong("softmax dim=1", "softmax(dim=1) is the key axis only when Q has two axes; with leading axes use dim=-1")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = scores.softmax(1)
    return weights @ V, weights


@wrong("one softmax over the whole matrix", "one softmax runs over all queries and keys together; every row should sum to 1")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = scores.flatten(-2).softmax(-1).view_as(scores)
    return weights @ V, weights


@wrong("exp without the maximum", "exp of a large score overflows to inf, and inf / inf is NaN: subtract the row maximum first")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = scores.exp() / scores.exp().sum(-1, keepdim=True)
    return weights @ V, weights


@wrong("no exp", "the scores are divided by their sum without exp: weights come out negative")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, 0.0)
    weights = scores / scores.sum(-1, keepdim=True)
    return weights @ V, weights


@wrong("sigmoid", "sigmoid looks at each score alone; softmax makes the keys compete, so that a row sums to 1")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = scores.sigmoid()
    return weights @ V, weights


@wrong("argmax", "only the best key gets weight: that look-up is hard and has no gradient; use softmax")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = F.one_hot(scores.argmax(-1), scores.shape[-1]).to(V.dtype)
    return weights @ V, weights


@wrong("K Q^T", "the product is the wrong way round: rows are queries and columns keys, so it is Q K^T")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = K @ Q.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = scores.softmax(-1)
    return weights @ V, weights


@wrong("transposed weights", "V is weighted by the transposed weights: row i of weights holds what query i takes from each key")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = scores.softmax(-1)
    return weights.transpose(-2, -1) @ V, weights


@wrong("scores returned", "you returned the scores as the second result; the weights, after softmax, are asked for")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    return scores.softmax(-1) @ V, scores


@wrong("results swapped", "you returned (weights, output); the order asked for is (output, weights)")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = scores.softmax(-1)
    return weights, weights @ V


@wrong("output only", "you returned the output alone; (output, weights) is asked for")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    return scores.softmax(-1) @ V


@wrong("Q changed in place", "your function changed its input: Q /= ... writes into the caller's tensor; use Q = Q / ...")
def scaled_dot_product_attention(Q, K, V, mask=None):
    Q /= math.sqrt(Q.shape[-1])
    scores = Q @ K.transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = scores.softmax(-1)
    return weights @ V, weights


@wrong("float32 hard-coded", "the results should keep the dtype of the inputs; you convert to float32")
def scaled_dot_product_attention(Q, K, V, mask=None):
    Q, K, V = Q.float(), K.float(), V.float()
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = scores.softmax(-1)
    return weights @ V, weights


@wrong("computed in float32", "float64 inputs lose their digits: you compute in float32 and convert back")
def scaled_dot_product_attention(Q, K, V, mask=None):
    dtype = V.dtype
    Q, K, V = Q.float(), K.float(), V.float()
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = scores.softmax(-1)
    return (weights @ V).to(dtype), weights.to(dtype)


@wrong("dropout left on", "weights are dropped at random: F.dropout acts unless it is told training=False")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = F.dropout(scores.softmax(-1), 0.1)
    return weights @ V, weights


@wrong("mask is None not handled", "your function fails when no mask is given: mask=None means that every key may be seen")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    scores = torch.where(mask.bool(), scores, torch.tensor(float("-inf"), dtype=scores.dtype))
    weights = scores.softmax(-1)
    return weights @ V, weights


@wrong("mask ignored", "the mask has no effect: where it is False (or 0) the weight must be 0")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    weights = scores.softmax(-1)
    return weights @ V, weights


@wrong("mask inverted", "the mask is read the wrong way round: True (or 1) means that the query may attend to the key")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask.bool(), -1e9)
    weights = scores.softmax(-1)
    return weights @ V, weights


@wrong("mask added", "a 0/1 mask was added to the scores: it moves them by 1, it does not forbid anything")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores + mask
    weights = scores.softmax(-1)
    return weights @ V, weights


@wrong("mask multiplied", "masked scores became 0, and exp(0) = 1: a masked key still gets weight; set them to -inf")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores * mask
    weights = scores.softmax(-1)
    return weights @ V, weights


@wrong("mask after the softmax", "the mask was applied after the softmax: rows no longer sum to 1 and masked keys still count below")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    weights = scores.softmax(-1)
    if mask is not None:
        weights = weights * mask
    return weights @ V, weights


@wrong("masked with -10", "-10 is not minus infinity: a masked key keeps a little weight, and more where scores are large")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -10.0)
    weights = scores.softmax(-1)
    return weights @ V, weights


@wrong("-1e4 added", "adding -1e4 does not hide a key whose score is larger than that: set masked scores to -inf")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores + (1.0 - mask.to(scores.dtype)) * -1e4
    weights = scores.softmax(-1)
    return weights @ V, weights


@wrong("0 times -inf", "0 * -inf is NaN: use masked_fill or torch.where instead of multiplying the mask by -inf")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores + (1.0 - mask.to(scores.dtype)) * float("-inf")
    weights = scores.softmax(-1)
    return weights @ V, weights


@wrong("0/1 masks not handled", "a mask of 0 and 1 integers fails: ~ on integers is not a logical not; compare with 0 or use .bool()")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = scores.softmax(-1)
    return weights @ V, weights


@wrong("V masked", "the values were zeroed but the weights still count the masked keys: mask the scores")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    weights = scores.softmax(-1)
    hidden = weights if mask is None else weights * mask
    return hidden @ V, weights


@wrong("detached", "the results carry no gradient: .detach(), .data, .item() or NumPy cut the graph")
def scaled_dot_product_attention(Q, K, V, mask=None):
    Q, K, V = Q.detach(), K.detach(), V.detach()
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = scores.softmax(-1)
    return weights @ V, weights


@wrong("weights detached", "the weights carry no gradient: return them as they are, without .detach()")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = scores.softmax(-1)
    return weights @ V, weights.detach()


@wrong("K.T", "K.T reverses all axes, so it works only in two: K.transpose(-2, -1) swaps the last two")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.T / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = scores.softmax(-1)
    return weights @ V, weights


@right("matmul and masked_fill")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = scores.softmax(-1)
    return weights @ V, weights


@right("finfo.min")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = torch.matmul(Q, K.mT) * K.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(~mask.bool(), torch.finfo(scores.dtype).min)
    weights = F.softmax(scores, dim=-1)
    return torch.matmul(weights, V), weights


@right("-1e9")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = (Q @ K.transpose(-1, -2)) / Q.size(-1) ** 0.5
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    weights = torch.softmax(scores, -1)
    return weights @ V, weights


@right("additive mask")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if mask is not None:
        bias = torch.zeros(mask.shape, dtype=scores.dtype)
        bias[mask == 0] = -torch.inf
        scores = scores + bias
    weights = scores.softmax(-1)
    return weights @ V, weights


@right("where")
def scaled_dot_product_attention(Q, K, V, mask=None):
    allowed = torch.ones((), dtype=torch.bool) if mask is None else mask.bool()
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    scores = torch.where(allowed, scores, torch.full_like(scores, -torch.inf))
    weights = scores.softmax(-1)
    return weights @ V, weights


@right("einsum, Q scaled first")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = torch.einsum("...id,...jd->...ij", Q / math.sqrt(Q.shape[-1]), K)
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not(), -math.inf)
    weights = scores.softmax(dim=-1)
    return torch.einsum("...ij,...jd->...id", weights, V), weights


@right("both by the fourth root")
def scaled_dot_product_attention(Q, K, V, mask=None):
    root = Q.shape[-1] ** -0.25
    scores = (Q * root) @ (K * root).transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(mask < 1, -torch.inf) if mask.dtype != torch.bool else scores.masked_fill(~mask, -torch.inf)
    weights = scores.softmax(-1)
    return weights @ V, weights


@right("stable softmax by hand")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    exps = (scores - scores.amax(-1, keepdim=True)).exp()
    weights = exps / exps.sum(-1, keepdim=True)
    return weights @ V, weights


@right("log_softmax")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min)
    weights = scores.log_softmax(-1).exp()
    return weights @ V, weights


@right("divided by the sum last")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    exps = (scores - scores.max(dim=-1, keepdim=True).values.detach()).exp()
    total = exps.sum(-1, keepdim=True)
    return (exps @ V) / total, exps / total


@right("torch's operator")
def scaled_dot_product_attention(Q, K, V, mask=None):
    allowed = None if mask is None else mask.bool()
    output = F.scaled_dot_product_attention(Q, K, V, attn_mask=allowed)
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if allowed is not None:
        scores = scores.masked_fill(~allowed, float("-inf"))
    return output, scores.softmax(-1)


@right("bmm")
def scaled_dot_product_attention(Q, K, V, mask=None):
    lead, n, d_k = Q.shape[:-2], Q.shape[-2], Q.shape[-1]
    m, d_v = K.shape[-2], V.shape[-1]
    scores = torch.bmm(Q.reshape(-1, n, d_k), K.reshape(-1, m, d_k).transpose(1, 2)) / math.sqrt(d_k)
    scores = scores.reshape(*lead, n, m)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = scores.softmax(-1)
    output = torch.bmm(weights.reshape(-1, n, m), V.reshape(-1, m, d_v)).reshape(*lead, n, d_v)
    return output, weights


@right("loop over queries")
def scaled_dot_product_attention(Q, K, V, mask=None):
    allowed = None if mask is None else mask.bool().expand(*Q.shape[:-1], K.shape[-2])
    rows = []
    for i in range(Q.shape[-2]):
        score = (Q[..., i : i + 1, :] * K).sum(-1) / math.sqrt(Q.shape[-1])
        if allowed is not None:
            score = score.masked_fill(~allowed[..., i, :], -torch.inf)
        rows.append(score.softmax(-1))
    weights = torch.stack(rows, dim=-2)
    return weights @ V, weights


@right("float64 inside")
def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q.double() @ K.double().transpose(-2, -1) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = scores.softmax(-1)
    return (weights @ V.double()).to(V.dtype), weights.to(V.dtype)
