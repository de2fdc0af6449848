"""Chapter 2: right answers that look different, and the mistakes learners make."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from autograder.checks.catalogue import right, wrong

# ---- project_qkv ----------------------------------------------------------------------------------------------


@wrong("X W^T", "the weights are transposed: W_q is (d_model, d_k), so the product is X @ W_q, without .T")
def project_qkv(X, W_q, W_k, W_v):
    return X @ W_q.T, X @ W_k.T, X @ W_v.T


@wrong("W X", "the product is the wrong way round: the tokens are the rows of X, so it is X @ W_q")
def project_qkv(X, W_q, W_k, W_v):
    return W_q @ X, W_k @ X, W_v @ X


@wrong("one matrix for Q and K", "Q and K come out of the same matrix: K needs W_k")
def project_qkv(X, W_q, W_k, W_v):
    return X @ W_q, X @ W_q, X @ W_v


@wrong("W_k used for V", "the values come out of W_k: V needs W_v")
def project_qkv(X, W_q, W_k, W_v):
    return X @ W_q, X @ W_k, X @ W_k


@wrong("K and V swapped", "you returned (Q, V, K); the order asked for is (Q, K, V)")
def project_qkv(X, W_q, W_k, W_v):
    return X @ W_q, X @ W_v, X @ W_k


@wrong("Q and K swapped", "you returned (K, Q, V); the order asked for is (Q, K, V)")
def project_qkv(X, W_q, W_k, W_v):
    return X @ W_k, X @ W_q, X @ W_v


@wrong("X for V", "the values are X itself: the payload is projected too, V = X W_v")
def project_qkv(X, W_q, W_k, W_v):
    return X @ W_q, X @ W_k, X


@wrong("K from Q", "K is made from Q: it is made from X, with W_k")
def project_qkv(X, W_q, W_k, W_v):
    Q = X @ W_q
    return Q, Q @ W_k, X @ W_v


@wrong("one after the other", "K is made from Q, and V from K: all three are made from X")
def project_qkv(X, W_q, W_k, W_v):
    Q = X @ W_q
    K = Q @ W_k
    return Q, K, K @ W_v


@wrong("scaled", "Q is divided by sqrt(d_k): projecting is a plain product, the scale belongs to chapter 3")
def project_qkv(X, W_q, W_k, W_v):
    return X @ W_q / math.sqrt(W_q.shape[1]), X @ W_k, X @ W_v


@wrong("elementwise", "* multiplies entry by entry; a matrix product is @")
def project_qkv(X, W_q, W_k, W_v):
    return X * W_q, X * W_k, X * W_v


@wrong("batch flattened", "the leading axes are gone: Q should have the shape of X but for its last axis")
def project_qkv(X, W_q, W_k, W_v):
    rows = X.reshape(-1, X.shape[-1])
    return rows @ W_q, rows @ W_k, rows @ W_v


@wrong("two axes only", "your function works for X of two axes only; `@` needs no help with leading axes")
def project_qkv(X, W_q, W_k, W_v):
    return tuple(np.einsum("nd,dk->nk", X, W) for W in (W_q, W_k, W_v))


@wrong("float32 hard-coded", "the results should keep the dtype of X; you convert to float32")
def project_qkv(X, W_q, W_k, W_v):
    X = X.astype(np.float32)
    return tuple(X @ W.astype(np.float32) for W in (W_q, W_k, W_v))


@wrong("float64 always", "the results should keep the dtype of X; yours are always float64")
def project_qkv(X, W_q, W_k, W_v):
    X = X.astype(np.float64)
    return X @ W_q, X @ W_k, X @ W_v


@wrong("activation", "a non-linearity is applied: the projections are linear, nothing follows the product")
def project_qkv(X, W_q, W_k, W_v):
    return tuple(np.maximum(X @ W, 0) for W in (W_q, W_k, W_v))


@wrong("X centred in place", "your function changed X in place, and so its caller's array: X -= ... writes into it")
def project_qkv(X, W_q, W_k, W_v):
    X -= X.mean(axis=-1, keepdims=True)
    return X @ W_q, X @ W_k, X @ W_v


@right("three products")
def project_qkv(X, W_q, W_k, W_v):
    return X @ W_q, X @ W_k, X @ W_v


@right("np.dot")
def project_qkv(X, W_q, W_k, W_v):
    return np.dot(X, W_q), np.dot(X, W_k), np.dot(X, W_v)


@right("einsum, a list")
def project_qkv(X, W_q, W_k, W_v):
    return [np.einsum("...d,dk->...k", X, W) for W in (W_q, W_k, W_v)]


@right("one wide product, then split")
def project_qkv(X, W_q, W_k, W_v):
    d_k = W_q.shape[1]
    wide = X @ np.concatenate([W_q, W_k, W_v], axis=1)
    return tuple(np.split(wide, [d_k, 2 * d_k], axis=-1))


@right("transposed twice")
def project_qkv(X, W_q, W_k, W_v):
    columns = np.swapaxes(X, -1, -2)
    return tuple(np.swapaxes(W.T @ columns, -1, -2) for W in (W_q, W_k, W_v))


@right("reshaped and back")
def project_qkv(X, W_q, W_k, W_v):
    rows = X.reshape(-1, X.shape[-1])
    return tuple((rows @ W).reshape(*X.shape[:-1], W.shape[1]) for W in (W_q, W_k, W_v))


@right("torch")
def project_qkv(X, W_q, W_k, W_v):
    return tuple((torch.from_numpy(X) @ torch.from_numpy(W)).numpy() for W in (W_q, W_k, W_v))


@right("matmul with out, in float64 and back")
def project_qkv(X, W_q, W_k, W_v):
    wide = X.astype(np.float64)
    return tuple(np.matmul(wide, W.astype(np.float64)).astype(X.dtype) for W in (W_q, W_k, W_v))


# ---- attention_scores -----------------------------------------------------------------------------------------


@wrong("K Q^T", "the product is the wrong way round: rows are queries and columns keys, so it is Q K^T")
def attention_scores(Q, K):
    return K @ np.swapaxes(Q, -2, -1)


@wrong("K.T", "K.T reverses all axes, so it is right only for two; np.swapaxes(K, -2, -1) swaps the last two")
def attention_scores(Q, K):
    return Q @ K.T


@wrong("three axes only", "your function works for three axes only; count the axes from the end: -2 and -1")
def attention_scores(Q, K):
    return Q @ K.transpose(0, 2, 1)


@wrong("axes 1 and 2 swapped", "axes 1 and 2 are the last two only where there are three: count from the end, -2 and -1")
def attention_scores(Q, K):
    return Q @ np.swapaxes(K, 1, 2)


@wrong("axes 0 and 1 swapped", "you swap the first two axes; with leading axes the last two are meant, -2 and -1")
def attention_scores(Q, K):
    return Q @ np.swapaxes(K, 0, 1)


@wrong("K not transposed", "Q @ K is no table of dot products: the d_k features of a query must meet those of a key, so K is transposed")
def attention_scores(Q, K):
    return Q @ K


@wrong("np.inner", "np.inner and np.dot pair every matrix of Q with every matrix of K: `@` goes along the leading axes of both together")
def attention_scores(Q, K):
    return np.inner(Q, K)


@wrong("each with itself", "query i meets key i only: every query is compared with every key")
def attention_scores(Q, K):
    return (Q * K).sum(axis=-1)


@wrong("scaled", "the scores are divided by sqrt(d_k): that is chapter 3; here the bare dot product is asked for")
def attention_scores(Q, K):
    return Q @ np.swapaxes(K, -2, -1) / math.sqrt(Q.shape[-1])


@wrong("softmax included", "you returned weights; the scores are the dot products themselves, softmax comes later")
def attention_scores(Q, K):
    scores = Q @ np.swapaxes(K, -2, -1)
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exps / exps.sum(axis=-1, keepdims=True)


@wrong("cosine", "you divided by the lengths: that is the cosine; a score is the dot product, length and all")
def attention_scores(Q, K):
    Q = Q / np.linalg.norm(Q, axis=-1, keepdims=True)
    K = K / np.linalg.norm(K, axis=-1, keepdims=True)
    return Q @ np.swapaxes(K, -2, -1)


@wrong("distance", "that is a distance between query and key; a score is their dot product")
def attention_scores(Q, K):
    return -((Q[..., :, None, :] - K[..., None, :, :]) ** 2).sum(axis=-1)


@wrong("products not summed", "a dot product adds up the d_k products of its two vectors; you kept them apart")
def attention_scores(Q, K):
    return Q[..., :, None, :] * K[..., None, :, :]


@wrong("averaged", "a dot product is the sum over the features, not their mean")
def attention_scores(Q, K):
    return (Q[..., :, None, :] * K[..., None, :, :]).mean(axis=-1)


@wrong("Q with itself", "the queries are compared with one another; K is not used")
def attention_scores(Q, K):
    return Q @ np.swapaxes(Q, -2, -1)


@wrong("float32 hard-coded", "the scores should keep the dtype of the inputs; you convert to float32")
def attention_scores(Q, K):
    return Q.astype(np.float32) @ np.swapaxes(K, -2, -1).astype(np.float32)


@wrong("float64 always", "the scores should keep the dtype of the inputs; yours are always float64")
def attention_scores(Q, K):
    scores = np.zeros((*Q.shape[:-1], K.shape[-2]))
    for j in range(K.shape[-2]):
        scores[..., j] = (Q * K[..., j : j + 1, :]).sum(axis=-1)
    return scores


@wrong("absolute value", "the sign is lost: a key that points away from the query has a negative score")
def attention_scores(Q, K):
    return np.abs(Q @ np.swapaxes(K, -2, -1))


@right("swapaxes")
def attention_scores(Q, K):
    return Q @ np.swapaxes(K, -2, -1)


@right("mT")
def attention_scores(Q, K):
    return np.matmul(Q, K.mT)


@right("einsum")
def attention_scores(Q, K):
    return np.einsum("...id,...jd->...ij", Q, K)


@right("broadcast and sum")
def attention_scores(Q, K):
    return (Q[..., :, None, :] * K[..., None, :, :]).sum(axis=-1)


@right("transpose with a list of axes")
def attention_scores(Q, K):
    axes = [*range(K.ndim - 2), K.ndim - 1, K.ndim - 2]
    return Q @ K.transpose(axes)


@right("the other way round, then turned")
def attention_scores(Q, K):
    return np.moveaxis(K @ np.moveaxis(Q, -1, -2), -1, -2)


@right("loop over the batch")
def attention_scores(Q, K):
    lead = Q.shape[:-2]
    queries, keys = Q.reshape(-1, *Q.shape[-2:]), K.reshape(-1, *K.shape[-2:])
    scores = np.stack([q @ k.T for q, k in zip(queries, keys)])
    return scores.reshape(*lead, Q.shape[-2], K.shape[-2])


@right("torch")
def attention_scores(Q, K):
    return (torch.tensor(Q) @ torch.tensor(K).transpose(-2, -1)).numpy()


# ---- softmax --------------------------------------------------------------------------------------------------


@wrong("exp without the maximum", "exp of a large score overflows to inf, and inf / inf is NaN: subtract the maximum first")
def softmax(x, axis=-1):
    exps = np.exp(x)
    return exps / exps.sum(axis=axis, keepdims=True)


@wrong("maximum of all", "you subtract one maximum from everything: a slice far below it underflows to 0 / 0; take the maximum along axis")
def softmax(x, axis=-1):
    exps = np.exp(x - x.max())
    return exps / exps.sum(axis=axis, keepdims=True)


@wrong("largest absolute value", "you subtract the largest absolute value: where all scores are far below 0, or one is -inf, nothing is left but 0 / 0. Subtract the maximum, with its sign")
def softmax(x, axis=-1):
    exps = np.exp(x - np.abs(x).max(axis=axis, keepdims=True))
    return exps / exps.sum(axis=axis, keepdims=True)


@wrong("maximum along the last axis", "the maximum is taken along the last axis and the sum along axis: both belong along axis")
def softmax(x, axis=-1):
    exps = np.exp(x - x.max(axis=-1, keepdims=True))
    return exps / exps.sum(axis=axis, keepdims=True)


@wrong("sum of everything", "each slice has its own maximum, but one sum runs over the whole array: sum along axis, too")
def softmax(x, axis=-1):
    exps = np.exp(x - x.max(axis=axis, keepdims=True))
    return exps / exps.sum()


@wrong("mean subtracted", "subtracting the mean leaves large numbers above it, and -inf has no mean: subtract the maximum")
def softmax(x, axis=-1):
    exps = np.exp(x - x.mean(axis=axis, keepdims=True))
    return exps / exps.sum(axis=axis, keepdims=True)


@wrong("minimum subtracted", "subtracting the minimum makes large scores larger still: subtract the maximum")
def softmax(x, axis=-1):
    exps = np.exp(x - x.min(axis=axis, keepdims=True))
    return exps / exps.sum(axis=axis, keepdims=True)


@wrong("clipped", "clipping large scores makes them all equal: subtract the maximum, which changes no weight")
def softmax(x, axis=-1):
    exps = np.exp(np.clip(x, -80, 80))
    return exps / exps.sum(axis=axis, keepdims=True)


@wrong("never below zero", "the maximum is taken with 0: where all scores are far below 0, every exp is 0 and 0 / 0 is NaN")
def softmax(x, axis=-1):
    exps = np.exp(x - x.max(axis=axis, keepdims=True, initial=0))
    return exps / exps.sum(axis=axis, keepdims=True)


@wrong("epsilon in the denominator", "the weights do not add up to 1 to the last digit: a small number is added to the sum, or the result is rounded")
def softmax(x, axis=-1):
    exps = np.exp(x - x.max(axis=axis, keepdims=True))
    return exps / (exps.sum(axis=axis, keepdims=True) + 1e-6)


@wrong("axis ignored", "axis is ignored: you always work along the last one")
def softmax(x, axis=-1):
    exps = np.exp(x - x.max(axis=-1, keepdims=True))
    return exps / exps.sum(axis=-1, keepdims=True)


@wrong("axis counted from 0", "the default works along the first axis: it should be the last, axis=-1")
def softmax(x, axis=0):
    exps = np.exp(x - x.max(axis=axis, keepdims=True))
    return exps / exps.sum(axis=axis, keepdims=True)


@wrong("keepdims missing", "without keepdims=True the maximum and the sum lose their axis and are spread along another one")
def softmax(x, axis=-1):
    exps = np.exp(x - x.max(axis=axis))
    return exps / exps.sum(axis=axis)


@wrong("keepdims missing in the sum", "without keepdims=True the sum loses its axis and divides along another one")
def softmax(x, axis=-1):
    exps = np.exp(x - x.max(axis=axis, keepdims=True))
    return exps / exps.sum(axis=axis)


@wrong("one sum for all", "one sum runs over the whole array; each slice along axis should add up to 1")
def softmax(x, axis=-1):
    exps = np.exp(x - x.max())
    return exps / exps.sum()


@wrong("no exp", "the scores are divided by their sum without exp: weights come out negative")
def softmax(x, axis=-1):
    return x / x.sum(axis=axis, keepdims=True)


@wrong("no division", "the exponentials are not divided by their sum, so they do not add up to 1")
def softmax(x, axis=-1):
    return np.exp(x - x.max(axis=axis, keepdims=True))


@wrong("sign", "large scores get small weights: the exponent is x - maximum, not maximum - x")
def softmax(x, axis=-1):
    exps = np.exp(x.max(axis=axis, keepdims=True) - x)
    return exps / exps.sum(axis=axis, keepdims=True)


@wrong("sigmoid", "sigmoid looks at each score alone; softmax makes them compete, so that they add up to 1")
def softmax(x, axis=-1):
    return 1 / (1 + np.exp(-x))


@wrong("argmax", "only the largest score gets weight: that is a hard choice, softmax is a soft one")
def softmax(x, axis=-1):
    return (x == x.max(axis=axis, keepdims=True)).astype(x.dtype)


@wrong("log of it", "you returned the logarithm of the weights")
def softmax(x, axis=-1):
    shifted = x - x.max(axis=axis, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


@wrong("base 2", "the base is e: np.exp, not powers of 2")
def softmax(x, axis=-1):
    exps = np.exp2(x - x.max(axis=axis, keepdims=True))
    return exps / exps.sum(axis=axis, keepdims=True)


@wrong("twice", "softmax is applied to its own result; once is enough")
def softmax(x, axis=-1):
    for _ in range(2):
        exps = np.exp(x - x.max(axis=axis, keepdims=True))
        x = exps / exps.sum(axis=axis, keepdims=True)
    return x


@wrong("root of squares", "divide by the sum of the exponentials, not by their length (the root of the sum of squares)")
def softmax(x, axis=-1):
    exps = np.exp(x - x.max(axis=axis, keepdims=True))
    return exps / np.linalg.norm(exps, axis=axis, keepdims=True)


@wrong("x changed in place", "your function changed its input: x -= ... writes into the caller's array; use x = x - ...")
def softmax(x, axis=-1):
    x -= x.max(axis=axis, keepdims=True)
    exps = np.exp(x)
    return exps / exps.sum(axis=axis, keepdims=True)


@wrong("-inf to zero", "-inf became 0, and exp(0) = 1: a score of -inf must get the weight 0")
def softmax(x, axis=-1):
    x = np.where(np.isinf(x), 0, x)
    exps = np.exp(x - x.max(axis=axis, keepdims=True))
    return exps / exps.sum(axis=axis, keepdims=True)


@wrong("compared in pairs", "-inf minus -inf is NaN: two scores of -inf must not be subtracted from one another")
def softmax(x, axis=-1):
    x = np.moveaxis(x, axis, -1)
    gaps = x[..., None, :] - x[..., :, None]
    return np.moveaxis(1 / np.exp(gaps).sum(axis=-1), -1, axis)


@wrong("float32 hard-coded", "the weights should keep the dtype of x; you convert to float32")
def softmax(x, axis=-1):
    x = x.astype(np.float32)
    exps = np.exp(x - x.max(axis=axis, keepdims=True))
    return exps / exps.sum(axis=axis, keepdims=True)


@wrong("float64 always", "the weights should keep the dtype of x; yours are always float64")
def softmax(x, axis=-1):
    x = x.astype(np.float64)
    exps = np.exp(x - x.max(axis=axis, keepdims=True))
    return exps / exps.sum(axis=axis, keepdims=True)


@wrong("rounded", "the weights are rounded: return them as they come")
def softmax(x, axis=-1):
    exps = np.exp(x - x.max(axis=axis, keepdims=True))
    return np.round(exps / exps.sum(axis=axis, keepdims=True), 3)


@right("maximum subtracted")
def softmax(x, axis=-1):
    exps = np.exp(x - x.max(axis=axis, keepdims=True))
    return exps / exps.sum(axis=axis, keepdims=True)


@right("expand_dims")
def softmax(x, axis=-1):
    exps = np.exp(x - np.expand_dims(np.max(x, axis=axis), axis))
    return exps / np.expand_dims(np.sum(exps, axis=axis), axis)


@right("axis moved last")
def softmax(x, axis=-1):
    y = np.moveaxis(x, axis, -1)
    y = np.exp(y - y.max(-1)[..., None])
    return np.moveaxis(y / y.sum(-1)[..., None], -1, axis)


@right("axis moved first")
def softmax(x, axis=-1):
    y = np.swapaxes(x, axis, 0).copy()
    y -= y.max(axis=0)
    np.exp(y, out=y)
    y /= y.sum(axis=0)
    return np.swapaxes(y, axis, 0)


@right("log-sum-exp")
def softmax(x, axis=-1):
    return np.exp(x - np.logaddexp.reduce(x, axis=axis, keepdims=True))


@right("slice by slice")
def softmax(x, axis=-1):
    def one(row):
        exps = np.exp(row - row.max())
        return exps / exps.sum()

    return np.apply_along_axis(one, axis, x)


@right("-inf set to zero at the end")
def softmax(x, axis=-1):
    finite = np.where(np.isneginf(x), np.finfo(x.dtype).min, x)
    exps = np.exp(finite - finite.max(axis=axis, keepdims=True))
    exps = np.where(np.isneginf(x), 0, exps).astype(x.dtype)
    return exps / np.add.reduce(exps, axis=axis, keepdims=True)


@right("float64 inside")
def softmax(x, axis=-1):
    y = x.astype(np.float64)
    exps = np.exp(y - np.amax(y, axis=axis, keepdims=True))
    return (exps / exps.sum(axis=axis, keepdims=True)).astype(x.dtype)


@right("powers of 2")
def softmax(x, axis=-1):
    exps = np.exp2((x - x.max(axis=axis, keepdims=True)) * x.dtype.type(1 / math.log(2)))
    return np.divide(exps, exps.sum(axis=axis, keepdims=True))


@right("torch")
def softmax(x, axis=-1):
    return torch.softmax(torch.tensor(x), dim=axis).numpy()


# ---- attention ------------------------------------------------------------------------------------------------


@wrong("scaled", "the scores are divided by sqrt(d_k): that is right from chapter 3 on; here attention is not scaled")
def attention(Q, K, V):
    scores = Q @ np.swapaxes(K, -2, -1) / math.sqrt(Q.shape[-1])
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = exps / exps.sum(axis=-1, keepdims=True)
    return weights @ V, weights


@wrong("softmax over queries", "the softmax runs over the queries; each query spreads one unit of weight over the keys, axis=-1")
def attention(Q, K, V):
    scores = Q @ np.swapaxes(K, -2, -1)
    exps = np.exp(scores - scores.max(axis=-2, keepdims=True))
    weights = exps / exps.sum(axis=-2, keepdims=True)
    return weights @ V, weights


@wrong("softmax axis=1", "axis=1 is the axis of the keys only when Q has two axes; with leading axes use axis=-1")
def attention(Q, K, V):
    scores = Q @ np.swapaxes(K, -2, -1)
    exps = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights = exps / exps.sum(axis=1, keepdims=True)
    return weights @ V, weights


@wrong("one softmax over the whole matrix", "one softmax runs over all queries and keys together; every row should sum to 1")
def attention(Q, K, V):
    scores = Q @ np.swapaxes(K, -2, -1)
    exps = np.exp(scores - scores.max(axis=(-2, -1), keepdims=True))
    weights = exps / exps.sum(axis=(-2, -1), keepdims=True)
    return weights @ V, weights


@wrong("exp without the maximum", "exp of a large score overflows to inf, and inf / inf is NaN: subtract the row maximum first")
def attention(Q, K, V):
    exps = np.exp(Q @ np.swapaxes(K, -2, -1))
    weights = exps / exps.sum(axis=-1, keepdims=True)
    return weights @ V, weights


@wrong("maximum of all", "one maximum is subtracted from every row: a row far below it underflows to 0 / 0")
def attention(Q, K, V):
    scores = Q @ np.swapaxes(K, -2, -1)
    exps = np.exp(scores - scores.max())
    weights = exps / exps.sum(axis=-1, keepdims=True)
    return weights @ V, weights


@wrong("no exp", "the scores are divided by their sum without exp: weights come out negative")
def attention(Q, K, V):
    scores = Q @ np.swapaxes(K, -2, -1)
    weights = scores / scores.sum(axis=-1, keepdims=True)
    return weights @ V, weights


@wrong("no division", "the exponentials are not divided by their sum: a row of weights should add up to 1")
def attention(Q, K, V):
    scores = Q @ np.swapaxes(K, -2, -1)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights @ V, weights


@wrong("no softmax", "V is weighted by the raw scores: softmax turns them into weights first")
def attention(Q, K, V):
    weights = Q @ np.swapaxes(K, -2, -1)
    return weights @ V, weights


@wrong("values mixed with the scores", "the weights are right, but V is mixed with the raw scores: the output is weights @ V")
def attention(Q, K, V):
    scores = Q @ np.swapaxes(K, -2, -1)
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return scores @ V, exps / exps.sum(axis=-1, keepdims=True)


@wrong("softmax of the output", "softmax comes before the product with V, not after it")
def attention(Q, K, V):
    scores = Q @ np.swapaxes(K, -2, -1)
    mixed = scores @ V
    exps = np.exp(mixed - mixed.max(axis=-1, keepdims=True))
    return exps / exps.sum(axis=-1, keepdims=True), scores


@wrong("sigmoid", "sigmoid looks at each score alone; softmax makes the keys compete, so that a row sums to 1")
def attention(Q, K, V):
    weights = 1 / (1 + np.exp(-(Q @ np.swapaxes(K, -2, -1))))
    return weights @ V, weights


@wrong("argmax", "only the best key gets weight: that look-up is hard and has no gradient; use softmax")
def attention(Q, K, V):
    scores = Q @ np.swapaxes(K, -2, -1)
    weights = (scores == scores.max(axis=-1, keepdims=True)).astype(V.dtype)
    return weights @ V, weights


@wrong("K Q^T", "the product is the wrong way round: rows are queries and columns keys, so it is Q K^T")
def attention(Q, K, V):
    scores = K @ np.swapaxes(Q, -2, -1)
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = exps / exps.sum(axis=-1, keepdims=True)
    return weights @ V, weights


@wrong("transposed weights", "V is weighted by the transposed weights: row i of weights holds what query i takes from each key")
def attention(Q, K, V):
    scores = Q @ np.swapaxes(K, -2, -1)
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = exps / exps.sum(axis=-1, keepdims=True)
    return np.swapaxes(weights, -2, -1) @ V, weights


@wrong("keys mixed", "the keys are mixed in place of the values: the output is weights @ V")
def attention(Q, K, V):
    scores = Q @ np.swapaxes(K, -2, -1)
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = exps / exps.sum(axis=-1, keepdims=True)
    return weights @ K, weights


@wrong("scores from V", "the queries are compared with the values: scores come from the keys, Q K^T")
def attention(Q, K, V):
    scores = Q @ np.swapaxes(V, -2, -1)
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = exps / exps.sum(axis=-1, keepdims=True)
    return weights @ V, weights


@wrong("scores returned", "you returned the scores as the second result; the weights, after softmax, are asked for")
def attention(Q, K, V):
    scores = Q @ np.swapaxes(K, -2, -1)
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exps / exps.sum(axis=-1, keepdims=True) @ V, scores


@wrong("results swapped", "you returned (weights, output); the order asked for is (output, weights)")
def attention(Q, K, V):
    scores = Q @ np.swapaxes(K, -2, -1)
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = exps / exps.sum(axis=-1, keepdims=True)
    return weights, weights @ V


@wrong("output only", "you returned the output alone; (output, weights) is asked for")
def attention(Q, K, V):
    scores = Q @ np.swapaxes(K, -2, -1)
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exps / exps.sum(axis=-1, keepdims=True) @ V


@wrong("V overwritten", "your function writes its output into V, the caller's array: make a new one")
def attention(Q, K, V):
    scores = Q @ np.swapaxes(K, -2, -1)
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = exps / exps.sum(axis=-1, keepdims=True)
    V[...] = weights @ V
    return V, weights


@wrong("K.T", "K.T reverses all axes, so it works only in two: np.swapaxes(K, -2, -1) swaps the last two")
def attention(Q, K, V):
    scores = Q @ K.T
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = exps / exps.sum(axis=-1, keepdims=True)
    return weights @ V, weights


@wrong("three axes at most", "your function fails with more than one leading axis: count the axes from the end, -2 and -1")
def attention(Q, K, V):
    scores = Q @ (K.T if K.ndim == 2 else K.transpose(0, 2, 1))
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = exps / exps.sum(axis=-1, keepdims=True)
    return weights @ V, weights


@wrong("float32 hard-coded", "the results should keep the dtype of the inputs; you convert to float32")
def attention(Q, K, V):
    Q, K, V = (array.astype(np.float32) for array in (Q, K, V))
    scores = Q @ np.swapaxes(K, -2, -1)
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = exps / exps.sum(axis=-1, keepdims=True)
    return weights @ V, weights


@wrong("computed in float32", "float64 inputs lose their digits: you compute in float32 and convert back")
def attention(Q, K, V):
    dtype = V.dtype
    Q, K, V = (array.astype(np.float32) for array in (Q, K, V))
    scores = Q @ np.swapaxes(K, -2, -1)
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = exps / exps.sum(axis=-1, keepdims=True)
    return (weights @ V).astype(dtype), weights.astype(dtype)


@wrong("float64 always", "the results should keep the dtype of the inputs; yours are always float64")
def attention(Q, K, V):
    scores = Q.astype(float) @ np.swapaxes(K, -2, -1)
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = exps / exps.sum(axis=-1, keepdims=True)
    return weights @ V, weights


@wrong("cosine", "queries and keys are divided by their lengths: a score is the dot product, length and all")
def attention(Q, K, V):
    Q = Q / np.linalg.norm(Q, axis=-1, keepdims=True)
    K = K / np.linalg.norm(K, axis=-1, keepdims=True)
    scores = Q @ np.swapaxes(K, -2, -1)
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = exps / exps.sum(axis=-1, keepdims=True)
    return weights @ V, weights


@wrong("keys ignored", "every key gets the same weight: the output is the mean of the values, whatever the query")
def attention(Q, K, V):
    weights = np.full((*Q.shape[:-1], K.shape[-2]), 1 / K.shape[-2], dtype=Q.dtype)
    return weights @ V, weights


@right("swapaxes")
def attention(Q, K, V):
    scores = Q @ np.swapaxes(K, -2, -1)
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = exps / exps.sum(axis=-1, keepdims=True)
    return weights @ V, weights


@right("einsum")
def attention(Q, K, V):
    scores = np.einsum("...id,...jd->...ij", Q, K)
    exps = np.exp(scores - np.amax(scores, axis=-1)[..., None])
    weights = exps / np.einsum("...j->...", exps)[..., None]
    return np.einsum("...ij,...jd->...id", weights, V), weights


@right("divided by the sum last")
def attention(Q, K, V):
    scores = Q @ K.mT
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    total = exps.sum(axis=-1, keepdims=True)
    return (exps @ V) / total, exps / total


@right("loop over queries")
def attention(Q, K, V):
    rows = []
    for i in range(Q.shape[-2]):
        score = (K * Q[..., i : i + 1, :]).sum(axis=-1)
        exps = np.exp(score - score.max(axis=-1, keepdims=True))
        rows.append(exps / exps.sum(axis=-1, keepdims=True))
    weights = np.stack(rows, axis=-2)
    return np.matmul(weights, V), weights


@right("loop over the batch")
def attention(Q, K, V):
    output = np.empty((*Q.shape[:-1], V.shape[-1]), dtype=V.dtype)
    weights = np.empty((*Q.shape[:-1], K.shape[-2]), dtype=V.dtype)
    for at in np.ndindex(Q.shape[:-2]):
        exps = Q[at] @ K[at].T
        exps = np.exp(exps - exps.max(axis=1, keepdims=True))
        weights[at] = exps / exps.sum(axis=1, keepdims=True)
        output[at] = weights[at] @ V[at]
    return output, weights


@right("log-sum-exp")
def attention(Q, K, V):
    scores = Q @ np.swapaxes(K, -1, -2)
    weights = np.exp(scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True))
    return weights @ V, weights


@right("float64 inside, a list")
def attention(Q, K, V):
    scores = Q.astype(np.float64) @ np.swapaxes(K, -2, -1).astype(np.float64)
    exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = exps / exps.sum(axis=-1, keepdims=True)
    return [(weights @ V).astype(V.dtype), weights.astype(V.dtype)]


@right("sum of weighted values")
def attention(Q, K, V):
    scores = (Q[..., :, None, :] * K[..., None, :, :]).sum(axis=-1)
    scores = scores - scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    output = sum(weights[..., j : j + 1] * V[..., j : j + 1, :] for j in range(V.shape[-2]))
    return output, weights


@right("torch's operator")
def attention(Q, K, V):
    q, k, v = (torch.tensor(array) for array in (Q, K, V))
    output = F.scaled_dot_product_attention(q, k, v, scale=1.0)
    return output.numpy(), (q @ k.transpose(-2, -1)).softmax(-1).numpy()


# ---- previous_token_head --------------------------------------------------------------------------------------

# Told by the catalogue where an answer is one of these, and by the judge where it only behaves like one.
HEAD_MESSAGES = {
    "next token": "token i looks at token i+1: the shift goes the wrong way",
    "itself": "every token looks at itself: its query must match the key of the position before its own",
    "symbols matched": "tokens look for their own symbol: use the one-hot of the position, which comes after the v of the symbol",
}


@wrong("next token", HEAD_MESSAGES["next token"])
def previous_token_head(v, n, sharpness=50.0):
    nothing = np.zeros((v, n))
    return np.vstack([nothing, sharpness * np.eye(n, k=1)]), np.vstack([nothing, np.eye(n)])


@wrong("itself", HEAD_MESSAGES["itself"])
def previous_token_head(v, n, sharpness=50.0):
    nothing = np.zeros((v, n))
    return np.vstack([nothing, sharpness * np.eye(n)]), np.vstack([nothing, np.eye(n)])


@wrong("symbols matched", HEAD_MESSAGES["symbols matched"])
def previous_token_head(v, n, sharpness=50.0):
    nothing = np.zeros((n, v))
    return np.vstack([sharpness * np.eye(v), nothing]), np.vstack([np.eye(v), nothing])


@wrong("positions first", "the first v rows belong to the symbols: the rows of the positions come after them, W[v:]")
def previous_token_head(v, n, sharpness=50.0):
    W_q, W_k = np.zeros((v + n, n)), np.zeros((v + n, n))
    W_q[:n] = sharpness * np.eye(n, k=-1)
    W_k[:n] = np.eye(n)
    return W_q, W_k


@wrong("symbols shifted too", "the shift covers the rows of the symbols too, so that what a token is moves its weights: leave them at zero")
def previous_token_head(v, n, sharpness=50.0):
    return sharpness * np.eye(v + n, k=-1), np.eye(v + n)


@wrong("symbols left in", "the symbols are compared as well: a token with the same symbol gets as much weight as the previous one")
def previous_token_head(v, n, sharpness=50.0):
    W_q = sharpness * np.eye(v + n)
    W_q[v:, v:] = sharpness * np.eye(n, k=-1)
    return W_q, np.eye(v + n)


@wrong("sharpness ignored", "a sharpness of 0.01 gives the same weights as the default: multiply the scores by sharpness")
def previous_token_head(v, n, sharpness=50.0):
    nothing = np.zeros((v, n))
    return np.vstack([nothing, 50.0 * np.eye(n, k=-1)]), np.vstack([nothing, np.eye(n)])


@wrong("not sharp", "the score of the previous token is 1 and that of the others 0: e to 1 is no verdict, multiply by sharpness")
def previous_token_head(v, n, sharpness=50.0):
    nothing = np.zeros((v, n))
    return np.vstack([nothing, np.eye(n, k=-1)]), np.vstack([nothing, np.eye(n)])


@wrong("divided by sharpness", "a larger sharpness makes your weights softer: multiply by it")
def previous_token_head(v, n, sharpness=50.0):
    nothing = np.zeros((v, n))
    return np.vstack([nothing, np.eye(n, k=-1) / sharpness]), np.vstack([nothing, np.eye(n)])


@wrong("root on one side", "only the root of sharpness reaches the scores: put it whole into one matrix, or its root into both")
def previous_token_head(v, n, sharpness=50.0):
    nothing = np.zeros((v, n))
    return np.vstack([nothing, math.sqrt(sharpness) * np.eye(n, k=-1)]), np.vstack([nothing, np.eye(n)])


@wrong("first token", "every token looks at the first one: each needs a query of its own")
def previous_token_head(v, n, sharpness=50.0):
    W_q, W_k = np.zeros((v + n, 1)), np.zeros((v + n, 1))
    W_q[v:] = sharpness
    W_k[v] = 1.0
    return W_q, W_k


@wrong("sign", "the previous token gets the smallest score: the sign is the wrong way round")
def previous_token_head(v, n, sharpness=50.0):
    nothing = np.zeros((v, n))
    return np.vstack([nothing, -sharpness * np.eye(n, k=-1)]), np.vstack([nothing, np.eye(n)])


@wrong("two back", "token i looks at token i-2: shift by one")
def previous_token_head(v, n, sharpness=50.0):
    nothing = np.zeros((v, n))
    return np.vstack([nothing, sharpness * np.eye(n, k=-2)]), np.vstack([nothing, np.eye(n)])


@wrong("both shifted", "queries and keys are shifted alike, so token i still meets its own key: shift one of them")
def previous_token_head(v, n, sharpness=50.0):
    nothing = np.zeros((v, n))
    shift = np.eye(n, k=-1)
    return np.vstack([nothing, sharpness * shift]), np.vstack([nothing, shift])


@wrong("all earlier tokens", "all earlier tokens get the same score: only the one just before should win")
def previous_token_head(v, n, sharpness=50.0):
    nothing = np.zeros((v, n))
    return np.vstack([nothing, sharpness * np.tri(n, k=-1)]), np.vstack([nothing, np.eye(n)])


@wrong("transposed", "the matrices are transposed: a token is a row, so W_q has v + n rows and X @ W_q exists")
def previous_token_head(v, n, sharpness=50.0):
    nothing = np.zeros((v, n))
    return np.vstack([nothing, sharpness * np.eye(n, k=-1)]).T, np.vstack([nothing, np.eye(n)]).T


@wrong("positions only", "the rows of the symbols are missing: W_q and W_k have v + n rows, one per entry of a token's row")
def previous_token_head(v, n, sharpness=50.0):
    return sharpness * np.eye(n, k=-1), np.eye(n)


@wrong("one matrix", "you returned one matrix; W_q and W_k are two")
def previous_token_head(v, n, sharpness=50.0):
    A = np.zeros((v + n, v + n))
    A[v:, v:] = sharpness * np.eye(n, k=-1)
    return A


@right("shifted identity")
def previous_token_head(v, n, sharpness=50.0):
    nothing = np.zeros((v, n))
    return np.vstack([nothing, sharpness * np.eye(n, k=-1)]), np.vstack([nothing, np.eye(n)])


@right("the key shifted")
def previous_token_head(v, n, sharpness=50.0):
    W_q, W_k = np.zeros((v + n, n)), np.zeros((v + n, n))
    W_q[v:] = np.eye(n)
    W_k[v:] = sharpness * np.eye(n, k=1)
    return W_q, W_k


@right("the root on both sides, full width")
def previous_token_head(v, n, sharpness=50.0):
    W_q, W_k = np.zeros((v + n, v + n)), np.zeros((v + n, v + n))
    root = math.sqrt(sharpness)
    for i in range(n):
        W_k[v + i, v + i] = root
        if i > 0:
            W_q[v + i, v + i - 1] = root
    return W_q, W_k


@right("round the corner")
def previous_token_head(v, n, sharpness=50.0):
    positions = np.eye(v + n)[:, v:]
    return sharpness * np.roll(positions, -1, axis=1), positions


@right("width n - 1, float32")
def previous_token_head(v, n, sharpness=50.0):
    positions = np.eye(v + n, dtype=np.float32)
    return positions[:, v + 1 :] * np.float32(sharpness), positions[:, v:-1]


@right("turned by an orthogonal matrix")
def previous_token_head(v, n, sharpness=50.0):
    R, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((n, n)))
    nothing = np.zeros((v, n))
    return np.vstack([nothing, sharpness * np.eye(n, k=-1)]) @ R, np.vstack([nothing, np.eye(n)]) @ R


@right("width 2, a parabola")
def previous_token_head(v, n, sharpness=50.0):
    i = np.arange(n)
    W_q, W_k = np.zeros((v + n, 2)), np.zeros((v + n, 2))
    W_q[v:] = sharpness * np.stack([2.0 * (i - 1), -np.ones(n)], axis=1)
    W_k[v:] = np.stack([i, i**2], axis=1)
    return W_q, W_k


@right("the symbols ask alike")
def previous_token_head(v, n, sharpness=50.0):
    W_q, W_k = np.zeros((v + n, n)), np.zeros((v + n, n))
    W_q[:v] = 3.0  # the same query for every symbol, and every key answers it alike
    W_q[v:] = sharpness * np.eye(n, k=-1)
    W_k[v:] = np.eye(n)
    return W_q, W_k
