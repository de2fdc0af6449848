"""Chapter 1: right answers that look different, and the mistakes learners make."""

import math

import numpy as np
import torch
from torch import nn

from autograder.checks.catalogue import right, wrong

# ---- rnn_forward ----------------------------------------------------------------------------------------------


@wrong("h0 at every step", "every step starts from h0: pass on the state that the step before has made")
def rnn_forward(x, h0, W_x, W_h, b):
    hs = []
    for t in range(x.shape[1]):
        hs.append(np.tanh(x[:, t] @ W_x + h0 @ W_h + b))
    return np.stack(hs, axis=1)


@wrong("last state only", "you returned the last state alone; the states of all n steps are asked for, (B, n, d_h)")
def rnn_forward(x, h0, W_x, W_h, b):
    h = h0
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] @ W_x + h @ W_h + b)
    return h


@wrong("h0 among the states", "you returned n + 1 states: h0 is given, it is not one of the n states that were made")
def rnn_forward(x, h0, W_x, W_h, b):
    hs = [h0]
    for t in range(x.shape[1]):
        hs.append(np.tanh(x[:, t] @ W_x + hs[-1] @ W_h + b))
    return np.stack(hs, axis=1)


@wrong("one step late", "you stored each state before its step: the result begins with h0 and lacks the last state")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = [], h0
    for t in range(x.shape[1]):
        hs.append(h)
        h = np.tanh(x[:, t] @ W_x + h @ W_h + b)
    return np.stack(hs, axis=1)


@wrong("no tanh", "tanh is missing: a state is tanh of the sum, so all its numbers lie between -1 and 1")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = [], h0
    for t in range(x.shape[1]):
        h = x[:, t] @ W_x + h @ W_h + b
        hs.append(h)
    return np.stack(hs, axis=1)


@wrong("tanh outside the loop", "tanh belongs to every step: the next step takes the state after tanh, not before it")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = [], h0
    for t in range(x.shape[1]):
        h = x[:, t] @ W_x + h @ W_h + b
        hs.append(h)
    return np.tanh(np.stack(hs, axis=1))


@wrong("sigmoid", "you used the sigmoid, which lies between 0 and 1; this network's function is tanh")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = [], h0
    for t in range(x.shape[1]):
        h = 1 / (1 + np.exp(-(x[:, t] @ W_x + h @ W_h + b)))
        hs.append(h)
    return np.stack(hs, axis=1)


@wrong("W_h transposed", "W_h is transposed: states are rows here, so the product is h @ W_h")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = [], h0
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] @ W_x + h @ W_h.T + b)
        hs.append(h)
    return np.stack(hs, axis=1)


@wrong("W_x transposed", "W_x is transposed: tokens are rows here, so the product is x @ W_x")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = [], h0
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] @ W_x.T + h @ W_h + b)
        hs.append(h)
    return np.stack(hs, axis=1)


@wrong("both transposed", "both weight matrices are transposed: with rows for tokens and states, write x @ W_x and h @ W_h")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = [], h0
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] @ W_x.T + h @ W_h.T + b)
        hs.append(h)
    return np.stack(hs, axis=1)


@wrong("weights swapped", "W_x and W_h are swapped: W_x takes the token, W_h the state")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = [], h0
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] @ W_h + h @ W_x + b)
        hs.append(h)
    return np.stack(hs, axis=1)


@wrong("no bias", "the bias b is not added")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = [], h0
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] @ W_x + h @ W_h)
        hs.append(h)
    return np.stack(hs, axis=1)


@wrong("bias twice", "the bias is added twice: nn.RNN has two biases, this network has one")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = [], h0
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] @ W_x + b + h @ W_h + b)
        hs.append(h)
    return np.stack(hs, axis=1)


@wrong("bias after tanh", "the bias is added after tanh; it belongs to the sum inside")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = [], h0
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] @ W_x + h @ W_h) + b
        hs.append(h)
    return np.stack(hs, axis=1)


@wrong("bias in the first step only", "the bias is added in the first step only: it belongs to every step")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = [], h0
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] @ W_x + h @ W_h + (b if t == 0 else 0))
        hs.append(h)
    return np.stack(hs, axis=1).astype(x.dtype)


@wrong("tanh before the old state", "tanh is taken of the token's part alone and h @ W_h is added after it: tanh belongs around the whole sum")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = [], h0
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] @ W_x + b) + h @ W_h
        hs.append(h)
    return np.stack(hs, axis=1)


@wrong("h0 ignored", "the first step starts from zeros, not from the h0 that you are given")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = [], np.zeros_like(h0)
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] @ W_x + h @ W_h + b)
        hs.append(h)
    return np.stack(hs, axis=1)


@wrong("no recurrence", "no state is passed on: each token is treated alone, and h @ W_h is missing")
def rnn_forward(x, h0, W_x, W_h, b):
    return np.tanh(x @ W_x + b)


@wrong("two tanh", "tanh is taken of each product; take it once, of the whole sum")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = [], h0
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] @ W_x) + np.tanh(h @ W_h + b)
        hs.append(h)
    return np.stack(hs, axis=1)


@wrong("old state added", "you added the old state to the new one; the new state is tanh of the sum, nothing more")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = [], h0
    for t in range(x.shape[1]):
        h = h + np.tanh(x[:, t] @ W_x + h @ W_h + b)
        hs.append(h)
    return np.stack(hs, axis=1)


@wrong("first token at every step", "every step reads the first token: use x[:, t]")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = [], h0
    for _ in range(x.shape[1]):
        h = np.tanh(x[:, 0] @ W_x + h @ W_h + b)
        hs.append(h)
    return np.stack(hs, axis=1)


@wrong("batch taken for time", "x[t] is sequence t of the batch; token t of every sequence is x[:, t]")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = [], h0
    for t in range(x.shape[0]):
        h = np.tanh(x[t] @ W_x + h @ W_h + b)
        hs.append(h)
    return np.stack(hs, axis=0)


@wrong("time first", "the result is (n, B, d_h): stack the states along axis 1")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = [], h0
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] @ W_x + h @ W_h + b)
        hs.append(h)
    return np.stack(hs)


@wrong("reshaped for transposed", "reshape does not swap axes: it mixes the batch with time; stack along axis 1, or transpose")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = [], h0
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] @ W_x + h @ W_h + b)
        hs.append(h)
    return np.stack(hs).reshape(x.shape[0], x.shape[1], -1)


@wrong("joined along the features", "the states are joined along the features, (B, n d_h): np.stack makes the new axis that np.concatenate does not")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = [], h0
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] @ W_x + h @ W_h + b)
        hs.append(h)
    return np.concatenate(hs, axis=1)


@wrong("from the last token", "you went from the last token to the first; the network reads from left to right")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = [], h0
    for t in reversed(range(x.shape[1])):
        h = np.tanh(x[:, t] @ W_x + h @ W_h + b)
        hs.append(h)
    return np.stack(hs[::-1], axis=1)


@wrong("one buffer", "the list holds one array n times, so all states are the last one: make a new array at every step")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = [], h0.copy()
    for t in range(x.shape[1]):
        h[:] = np.tanh(x[:, t] @ W_x + h @ W_h + b)
        hs.append(h)
    return np.stack(hs, axis=1)


@wrong("last token left out", "the loop stops one token early: the last state is never made")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = np.zeros((x.shape[0], x.shape[1], h0.shape[1]), x.dtype), h0
    for t in range(x.shape[1] - 1):
        h = np.tanh(x[:, t] @ W_x + h @ W_h + b)
        hs[:, t] = h
    return hs


@wrong("h0 changed", "the caller's h0 is changed: h[:] = … writes into the array you were given; h = … makes a new one")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = [], h0
    for t in range(x.shape[1]):
        h[:] = np.tanh(x[:, t] @ W_x + h @ W_h + b)
        hs.append(h.copy())
    return np.stack(hs, axis=1)


@wrong("float64 hard-coded", "np.zeros makes float64 whatever the input is: give it dtype=x.dtype")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = np.zeros((x.shape[0], x.shape[1], h0.shape[1])), h0
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] @ W_x + h @ W_h + b)
        hs[:, t] = h
    return hs


@wrong("float32 hard-coded", "the result is float32 whatever the input is: keep the dtype of x")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = np.zeros((x.shape[0], x.shape[1], h0.shape[1]), np.float32), h0
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] @ W_x + h @ W_h + b)
        hs[:, t] = h
    return hs


@wrong("tanh that overflows", "exp(2a) overflows for large a and gives NaN: np.tanh knows what to do")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = [], h0
    for t in range(x.shape[1]):
        e = np.exp(2 * (x[:, t] @ W_x + h @ W_h + b))
        h = (e - 1) / (e + 1)
        hs.append(h)
    return np.stack(hs, axis=1)


@wrong("axes squeezed", "an axis of length 1 was dropped: one token or a batch of one still has three axes")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = [], h0
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] @ W_x + h @ W_h + b)
        hs.append(h)
    return np.stack(hs, axis=1).squeeze()


@right("list and stack")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = [], h0
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] @ W_x + h @ W_h + b)
        hs.append(h)
    return np.stack(hs, axis=1)


@right("array made beforehand")
def rnn_forward(x, h0, W_x, W_h, b):
    B, n, _ = x.shape
    hs = np.empty((B, n, W_h.shape[0]), dtype=x.dtype)
    for t in range(n):
        before = h0 if t == 0 else hs[:, t - 1]
        hs[:, t] = np.tanh(x[:, t, :] @ W_x + before @ W_h + b)
    return hs


@right("tokens projected at once")
def rnn_forward(x, h0, W_x, W_h, b):
    inputs = x @ W_x + b
    h = h0
    for t in range(inputs.shape[1]):
        h = np.tanh(inputs[:, t] + h @ W_h)
        inputs[:, t] = h
    return inputs


@right("one joint matrix")
def rnn_forward(x, h0, W_x, W_h, b):
    W = np.concatenate([W_x, W_h], axis=0)
    states = [h0]
    for token in np.moveaxis(x, 1, 0):
        states.append(np.tanh(np.concatenate([token, states[-1]], axis=-1) @ W + b))
    return np.moveaxis(np.array(states[1:]), 0, 1)


@right("einsum")
def rnn_forward(x, h0, W_x, W_h, b):
    h, out = h0.copy(), []
    for t in range(x.shape[1]):
        h = np.tanh(np.einsum("bi,ij->bj", x[:, t], W_x) + np.einsum("bi,ij->bj", h, W_h) + b)
        out.append(h[:, None])
    return np.concatenate(out, axis=1)


@right("sequence by sequence")
def rnn_forward(x, h0, W_x, W_h, b):
    rows = []
    for sequence, h in zip(x, h0):
        row = []
        for token in sequence:
            h = np.tanh(token @ W_x + h @ W_h + b)
            row.append(h)
        rows.append(row)
    return np.array(rows)


@right("accumulate")
def rnn_forward(x, h0, W_x, W_h, b):
    from itertools import accumulate

    states = accumulate(x.swapaxes(0, 1), lambda h, token: np.tanh(token @ W_x + h @ W_h + b), initial=h0)
    return np.stack(list(states)[1:], axis=1)


@right("recursion")
def rnn_forward(x, h0, W_x, W_h, b):
    def states(x, h):
        if x.shape[1] == 0:
            return []
        h = np.tanh(x[:, 0].dot(W_x) + h.dot(W_h) + b)
        return [h[:, None, :]] + states(x[:, 1:], h)

    return np.concatenate(states(x, h0), axis=1)


@right("tanh from the sigmoid")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = [], h0
    for t in range(x.shape[1]):
        h = 2 / (1 + np.exp(-2 * (x[:, t] @ W_x + h @ W_h + b))) - 1
        hs.append(h)
    return np.stack(hs, axis=1)


@right("float64 inside")
def rnn_forward(x, h0, W_x, W_h, b):
    hs, h = [], h0.astype(np.float64)
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t].astype(np.float64) @ W_x + h @ W_h + b)
        hs.append(h)
    return np.stack(hs, axis=1).astype(x.dtype)


@right("torch's module")
def rnn_forward(x, h0, W_x, W_h, b):
    rnn = nn.RNN(W_x.shape[0], W_x.shape[1], batch_first=True, dtype=torch.from_numpy(b).dtype)
    with torch.no_grad():
        rnn.weight_ih_l0.copy_(torch.tensor(W_x).T)
        rnn.weight_hh_l0.copy_(torch.tensor(W_h).T)
        rnn.bias_ih_l0.copy_(torch.tensor(b))
        rnn.bias_hh_l0.zero_()
        return rnn(torch.tensor(x), torch.tensor(h0)[None])[0].numpy()


# ---- jacobian_norms -------------------------------------------------------------------------------------------


@wrong("factors in reverse order", "the factors are multiplied in reverse order: matrices do not commute, and the newest stands on the left")
def jacobian_norms(W_h, hs):
    norms, P = [], np.eye(len(W_h), dtype=hs.dtype)
    for t in reversed(range(len(hs))):
        norms.append(np.linalg.norm(P, 2))
        P = np.diag(1 - hs[t] ** 2) @ W_h.T @ P
    return np.array(norms[::-1])


@wrong("slope of tanh missing", "the factor 1 - h^2, the slope of tanh, is missing: a hop is diag(1 - h^2) W_h^T")
def jacobian_norms(W_h, hs):
    norms, P = [], np.eye(len(W_h), dtype=hs.dtype)
    for _ in hs:
        norms.append(np.linalg.norm(P, 2))
        P = P @ W_h.T
    return np.array(norms[::-1])


@wrong("W_h not transposed", "W_h is not transposed: row i of the Jacobian is about h_t[i], and h_t[i] takes column i of W_h")
def jacobian_norms(W_h, hs):
    norms, P = [], np.eye(len(W_h), dtype=hs.dtype)
    for t in reversed(range(len(hs))):
        norms.append(np.linalg.norm(P, 2))
        P = P @ np.diag(1 - hs[t] ** 2) @ W_h
    return np.array(norms[::-1])


@wrong("slope on the other side", "the slope 1 - h_t^2 belongs to the new state: it scales the columns of W_h, not the rows")
def jacobian_norms(W_h, hs):
    norms, P = [], np.eye(len(W_h), dtype=hs.dtype)
    for t in reversed(range(len(hs))):
        norms.append(np.linalg.norm(P, 2))
        P = P @ W_h.T @ np.diag(1 - hs[t] ** 2)
    return np.array(norms[::-1])


@wrong("slope of the old state", "the hop from h_t to h_(t+1) has the slope at h_(t+1); you took the one at h_t")
def jacobian_norms(W_h, hs):
    norms, P = [1.0], np.eye(len(W_h), dtype=hs.dtype)
    for t in reversed(range(len(hs) - 1)):
        P = P @ np.diag(1 - hs[t] ** 2) @ W_h.T
        norms.append(np.linalg.norm(P, 2))
    return np.array(norms[::-1], dtype=hs.dtype)


@wrong("Frobenius norm", "that is the Frobenius norm, np.linalg.norm's default for a matrix: the spectral norm is np.linalg.norm(P, 2)")
def jacobian_norms(W_h, hs):
    norms, P = [], np.eye(len(W_h), dtype=hs.dtype)
    for t in reversed(range(len(hs))):
        norms.append(np.linalg.norm(P))
        P = P @ np.diag(1 - hs[t] ** 2) @ W_h.T
    return np.array(norms[::-1])


@wrong("product of norms", "the norm of a product is at most the product of the norms: multiply the matrices first, then take the norm")
def jacobian_norms(W_h, hs):
    norms, product = [], 1.0
    for t in reversed(range(len(hs))):
        norms.append(product)
        product = product * np.linalg.norm(np.diag(1 - hs[t] ** 2) @ W_h.T, 2)
    return np.array(norms[::-1], dtype=hs.dtype)


@wrong("single hops", "these are the norms of the single hops; dh_n/dh_t is the product of all hops after t")
def jacobian_norms(W_h, hs):
    norms = [np.linalg.norm(np.diag(1 - h**2) @ W_h.T, 2) for h in hs[1:]]
    return np.array([*norms, 1.0], dtype=hs.dtype)


@wrong("spectral radius", "the largest modulus of an eigenvalue is the spectral radius; the spectral norm is the largest singular value")
def jacobian_norms(W_h, hs):
    norms, P = [], np.eye(len(W_h), dtype=hs.dtype)
    for t in reversed(range(len(hs))):
        norms.append(np.abs(np.linalg.eigvals(P)).max())
        P = P @ np.diag(1 - hs[t] ** 2) @ W_h.T
    return np.array(norms[::-1], dtype=hs.dtype)


@wrong("smallest singular value", "ord=-2 is the smallest singular value; the spectral norm, ord=2, is the largest")
def jacobian_norms(W_h, hs):
    norms, P = [], np.eye(len(W_h), dtype=hs.dtype)
    for t in reversed(range(len(hs))):
        norms.append(np.linalg.norm(P, -2))
        P = P @ np.diag(1 - hs[t] ** 2) @ W_h.T
    return np.array(norms[::-1])


@wrong("from the first state", "these are the norms of dh_t/dh_1; asked for are those of dh_n/dh_t, how the last state depends on each")
def jacobian_norms(W_h, hs):
    norms, P = [1.0], np.eye(len(W_h), dtype=hs.dtype)
    for t in range(1, len(hs)):
        P = np.diag(1 - hs[t] ** 2) @ W_h.T @ P
        norms.append(np.linalg.norm(P, 2))
    return np.array(norms, dtype=hs.dtype)


@wrong("from the first state, back to front", "these are the norms of dh_t/dh_1, back to front; asked for are those of dh_n/dh_t: start from the last state")
def jacobian_norms(W_h, hs):
    norms, P = [1.0], np.eye(len(W_h), dtype=hs.dtype)
    for t in range(1, len(hs)):
        P = np.diag(1 - hs[t] ** 2) @ W_h.T @ P
        norms.append(np.linalg.norm(P, 2))
    return np.array(norms[::-1], dtype=hs.dtype)


@wrong("elementwise products", "* multiplies entry by entry, so that all but the diagonal is lost: the factors are multiplied as matrices, @")
def jacobian_norms(W_h, hs):
    norms, P = [], np.eye(len(W_h), dtype=hs.dtype)
    for h in hs[::-1]:
        norms.append(np.linalg.norm(P, 2))
        P = P * (np.diag(1 - h**2) @ W_h.T)
    return np.array(norms[::-1])


@wrong("order of the result", "the result is back to front: norms[0] belongs to h_1 and the last, 1, to h_n")
def jacobian_norms(W_h, hs):
    norms, P = [], np.eye(len(W_h), dtype=hs.dtype)
    for t in reversed(range(len(hs))):
        norms.append(np.linalg.norm(P, 2))
        P = P @ np.diag(1 - hs[t] ** 2) @ W_h.T
    return np.array(norms)


@wrong("one hop too many", "every norm has one hop too many: dh_n/dh_n is the identity, with norm 1")
def jacobian_norms(W_h, hs):
    norms, P = [], np.eye(len(W_h), dtype=hs.dtype)
    for t in reversed(range(len(hs))):
        P = P @ np.diag(1 - hs[t] ** 2) @ W_h.T
        norms.append(np.linalg.norm(P, 2))
    return np.array(norms[::-1])


@wrong("last norm missing", "there are n - 1 norms; the n-th, dh_n/dh_n, is 1")
def jacobian_norms(W_h, hs):
    norms, P = [], np.eye(len(W_h), dtype=hs.dtype)
    for t in reversed(range(1, len(hs))):
        P = P @ np.diag(1 - hs[t] ** 2) @ W_h.T
        norms.append(np.linalg.norm(P, 2))
    return np.array(norms[::-1], dtype=hs.dtype)


@wrong("tanh taken again", "hs has the states after tanh already: the slope is 1 - h^2, not 1 - tanh(h)^2")
def jacobian_norms(W_h, hs):
    norms, P = [], np.eye(len(W_h), dtype=hs.dtype)
    for t in reversed(range(len(hs))):
        norms.append(np.linalg.norm(P, 2))
        P = P @ np.diag(1 - np.tanh(hs[t]) ** 2) @ W_h.T
    return np.array(norms[::-1])


@wrong("h not squared", "the slope of tanh is 1 - h^2; you used 1 - h")
def jacobian_norms(W_h, hs):
    norms, P = [], np.eye(len(W_h), dtype=hs.dtype)
    for t in reversed(range(len(hs))):
        norms.append(np.linalg.norm(P, 2))
        P = P @ np.diag(1 - hs[t]) @ W_h.T
    return np.array(norms[::-1])


@wrong("slope of the sigmoid", "h (1 - h) is the slope of the sigmoid; the slope of tanh is 1 - h^2")
def jacobian_norms(W_h, hs):
    norms, P = [], np.eye(len(W_h), dtype=hs.dtype)
    for t in reversed(range(len(hs))):
        norms.append(np.linalg.norm(P, 2))
        P = P @ np.diag(hs[t] * (1 - hs[t])) @ W_h.T
    return np.array(norms[::-1])


@wrong("float64 hard-coded", "the norms should keep the dtype of hs: np.eye and np.ones make float64 unless told otherwise")
def jacobian_norms(W_h, hs):
    norms, P = [], np.eye(len(W_h))
    for t in reversed(range(len(hs))):
        norms.append(np.linalg.norm(P, 2))
        P = P @ np.diag(1 - hs[t] ** 2) @ W_h.T
    return np.array(norms[::-1])


@wrong("hs changed", "your function changed hs in place: hs **= 2 writes into the caller's array")
def jacobian_norms(W_h, hs):
    norms, P = [], np.eye(len(W_h), dtype=hs.dtype)
    hs **= 2
    for t in reversed(range(len(hs))):
        norms.append(np.linalg.norm(P, 2))
        P = P @ np.diag(1 - hs[t]) @ W_h.T
    return np.array(norms[::-1])


@right("diag and product")
def jacobian_norms(W_h, hs):
    norms, P = [], np.eye(len(W_h), dtype=hs.dtype)
    for t in reversed(range(len(hs))):
        norms.append(np.linalg.norm(P, 2))
        P = P @ np.diag(1 - hs[t] ** 2) @ W_h.T
    return np.array(norms[::-1])


@right("columns scaled, filled from the back")
def jacobian_norms(W_h, hs):
    n = hs.shape[0]
    norms = np.ones(n, dtype=hs.dtype)
    P = np.eye(W_h.shape[0])
    for t in range(n - 2, -1, -1):
        P = (W_h * (1 - hs[t + 1] ** 2)) @ P
        norms[t] = np.linalg.norm(P, ord=2)
    return norms


@right("each product anew")
def jacobian_norms(W_h, hs):
    norms = []
    for t in range(len(hs)):
        P = np.eye(W_h.shape[0])
        for h in hs[t + 1:]:
            P = np.diag(1 - h * h) @ W_h.T @ P
        norms.append(np.linalg.svd(P, compute_uv=False)[0])
    return np.array(norms).astype(hs.dtype)


@right("all norms at once")
def jacobian_norms(W_h, hs):
    hops = (1 - hs[1:, :, None] ** 2) * W_h.T
    products = [np.eye(W_h.shape[0], dtype=hs.dtype)]
    for hop in hops[::-1]:
        products.insert(0, products[0] @ hop)
    return np.linalg.norm(np.stack(products), ord=2, axis=(1, 2))


@right("root of the largest eigenvalue")
def jacobian_norms(W_h, hs):
    norms, P = [], np.eye(len(W_h))
    for h in hs[::-1]:
        norms.append(np.sqrt(np.linalg.eigvalsh(P @ P.T)[-1]))
        P = P @ ((1 - h**2)[:, None] * W_h.T)
    return np.asarray(norms[::-1], dtype=hs.dtype)


@right("torch")
def jacobian_norms(W_h, hs):
    W, states = torch.tensor(W_h), torch.tensor(hs)
    P = torch.eye(len(W), dtype=W.dtype)
    norms = [torch.linalg.matrix_norm(P, 2)]
    for h in states[1:].flip(0):
        P = P @ torch.diag(1 - h**2) @ W.T
        norms.append(torch.linalg.matrix_norm(P, 2))
    return torch.stack(norms[::-1]).numpy()


@right("einsum over the hops")
def jacobian_norms(W_h, hs):
    P, norms = np.eye(len(W_h)), [1.0]
    for t in range(len(hs) - 1, 0, -1):
        P = np.einsum("ik,k,jk->ij", P, 1 - hs[t] ** 2, W_h)
        norms.append(np.linalg.svd(P)[1].max())
    return np.array(norms[::-1], dtype=hs.dtype)


@right("recursion")
def jacobian_norms(W_h, hs):
    def products(left):
        if len(left) == 1:
            return [np.eye(len(W_h), dtype=hs.dtype)]
        later = products(left[1:])
        return [later[0] @ ((1 - left[1] ** 2)[:, np.newaxis] * W_h.T), *later]

    return np.array([np.linalg.norm(P, 2) for P in products(hs)])


# ---- steps_and_path -------------------------------------------------------------------------------------------


@wrong("path n", "between the first and the last of n positions lie n - 1 hops: 99 from token 1 to token 100")
def steps_and_path(arch, n, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention") or n < 1 or k < 2:
        raise ValueError(arch)
    layers = 0
    while k**layers < n:
        layers += 1
    return {"rnn": (n, n), "conv": (1, -(-(n - 1) // (k - 1))), "dilated_conv": (1, layers), "attention": (1, min(1, n - 1))}[arch]


@wrong("floating logarithm", "math.log(125, 5) is 3.0000000000000004 and rounds up to 4: count with whole numbers instead")
def steps_and_path(arch, n, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention") or n < 1 or k < 2:
        raise ValueError(arch)
    layers = math.ceil(math.log(n, k))
    return {"rnn": (n, n - 1), "conv": (1, -(-(n - 1) // (k - 1))), "dilated_conv": (1, layers), "attention": (1, min(1, n - 1))}[arch]


@wrong("dilated like contiguous", "a dilated layer reaches k times as far as the one below it: its path grows with the logarithm of n")
def steps_and_path(arch, n, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention") or n < 1 or k < 2:
        raise ValueError(arch)
    layers = -(-(n - 1) // (k - 1))
    return {"rnn": (n, n - 1), "conv": (1, layers), "dilated_conv": (1, layers), "attention": (1, min(1, n - 1))}[arch]


@wrong("contiguous like dilated", "only dilation makes the path a logarithm: a contiguous window reaches k - 1 further back with each layer")
def steps_and_path(arch, n, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention") or n < 1 or k < 2:
        raise ValueError(arch)
    layers = 0
    while k**layers < n:
        layers += 1
    return {"rnn": (n, n - 1), "conv": (1, layers), "dilated_conv": (1, layers), "attention": (1, min(1, n - 1))}[arch]


@wrong("window reaches k back", "a window of k positions that ends at the current one reaches k - 1 back, not k")
def steps_and_path(arch, n, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention") or n < 1 or k < 2:
        raise ValueError(arch)
    layers = 0
    while k**layers < n:
        layers += 1
    return {"rnn": (n, n - 1), "conv": (1, -(-(n - 1) // k)), "dilated_conv": (1, layers), "attention": (1, min(1, n - 1))}[arch]


@wrong("n for n - 1 in conv", "the distance to cover is n - 1, from the last position to the first, not n")
def steps_and_path(arch, n, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention") or n < 1 or k < 2:
        raise ValueError(arch)
    layers = 0
    while k**layers < n:
        layers += 1
    conv = -(-n // (k - 1)) if n > 1 else 0
    return {"rnn": (n, n - 1), "conv": (1, conv), "dilated_conv": (1, layers), "attention": (1, min(1, n - 1))}[arch]


@wrong("rounded down", "a remainder needs one more layer: round up, as -(-a // b) does")
def steps_and_path(arch, n, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention") or n < 1 or k < 2:
        raise ValueError(arch)
    layers = 0
    while k**layers < n:
        layers += 1
    return {"rnn": (n, n - 1), "conv": (1, (n - 1) // (k - 1)), "dilated_conv": (1, layers), "attention": (1, min(1, n - 1))}[arch]


@wrong("centred window", "here the window is causal: all of its k - 1 other positions lie behind; it is not centred")
def steps_and_path(arch, n, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention") or n < 1 or k < 2:
        raise ValueError(arch)
    layers = 0
    while k**layers < n:
        layers += 1
    return {"rnn": (n, n - 1), "conv": (1, -(-(n - 1) // max(1, k // 2))), "dilated_conv": (1, layers), "attention": (1, min(1, n - 1))}[arch]


@wrong("one layer too many", "L layers cover k^L positions: k^L = n is enough, it need not be more")
def steps_and_path(arch, n, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention") or n < 1 or k < 2:
        raise ValueError(arch)
    layers = 0
    while n > 1 and k**layers <= n:
        layers += 1
    return {"rnn": (n, n - 1), "conv": (1, -(-(n - 1) // (k - 1))), "dilated_conv": (1, layers), "attention": (1, min(1, n - 1))}[arch]


@wrong("logarithm of n - 1", "L layers cover k^L positions, the current one included: compare k^L with n, not with n - 1")
def steps_and_path(arch, n, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention") or n < 1 or k < 2:
        raise ValueError(arch)
    layers = 0
    while k**layers < n - 1:
        layers += 1
    layers = max(layers, min(1, n - 1))
    return {"rnn": (n, n - 1), "conv": (1, -(-(n - 1) // (k - 1))), "dilated_conv": (1, layers), "attention": (1, min(1, n - 1))}[arch]


@wrong("log of n - 1, down to 0", "compare k^L with n: with n - 1 a layer is missing just beyond a power, and n = 2 gets none at all")
def steps_and_path(arch, n, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention") or n < 1 or k < 2:
        raise ValueError(arch)
    layers = 0
    while k**layers < n - 1:
        layers += 1
    return {"rnn": (n, n - 1), "conv": (1, -(-(n - 1) // (k - 1))), "dilated_conv": (1, layers), "attention": (1, min(1, n - 1))}[arch]


@wrong("doubled whatever k is", "the spacing grows by the factor k from layer to layer, not by 2")
def steps_and_path(arch, n, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention") or n < 1 or k < 2:
        raise ValueError(arch)
    layers = 0
    while (k - 1) * (2**layers - 1) < n - 1:
        layers += 1
    return {"rnn": (n, n - 1), "conv": (1, -(-(n - 1) // (k - 1))), "dilated_conv": (1, layers), "attention": (1, min(1, n - 1))}[arch]


@wrong("base 2", "the base of the logarithm is the window k, not 2")
def steps_and_path(arch, n, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention") or n < 1 or k < 2:
        raise ValueError(arch)
    layers = (n - 1).bit_length()
    return {"rnn": (n, n - 1), "conv": (1, -(-(n - 1) // (k - 1))), "dilated_conv": (1, layers), "attention": (1, min(1, n - 1))}[arch]


@wrong("swapped", "you returned (path, steps); the order asked for is (steps, path)")
def steps_and_path(arch, n, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention") or n < 1 or k < 2:
        raise ValueError(arch)
    layers = 0
    while k**layers < n:
        layers += 1
    return {"rnn": (n - 1, n), "conv": (-(-(n - 1) // (k - 1)), 1), "dilated_conv": (layers, 1), "attention": (min(1, n - 1), 1)}[arch]


@wrong("steps of the whole stack", "steps is what one layer needs in sequence, 1 for a convolution; how many layers it takes is the path")
def steps_and_path(arch, n, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention") or n < 1 or k < 2:
        raise ValueError(arch)
    layers = 0
    while k**layers < n:
        layers += 1
    conv = -(-(n - 1) // (k - 1))
    return {"rnn": (n, n - 1), "conv": (conv, conv), "dilated_conv": (layers, layers), "attention": (1, min(1, n - 1))}[arch]


@wrong("steps n - 1", "the recurrence makes n states one after the other, so n steps: h0 does not come for token 1")
def steps_and_path(arch, n, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention") or n < 1 or k < 2:
        raise ValueError(arch)
    layers = 0
    while k**layers < n:
        layers += 1
    return {"rnn": (n - 1, n - 1), "conv": (1, -(-(n - 1) // (k - 1))), "dilated_conv": (1, layers), "attention": (1, min(1, n - 1))}[arch]


@wrong("recurrence in one step", "a recurrence can't make all its states at once: step t waits for step t - 1, so n steps")
def steps_and_path(arch, n, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention") or n < 1 or k < 2:
        raise ValueError(arch)
    layers = 0
    while k**layers < n:
        layers += 1
    return {"rnn": (1, n - 1), "conv": (1, -(-(n - 1) // (k - 1))), "dilated_conv": (1, layers), "attention": (1, min(1, n - 1))}[arch]


@wrong("attention waits", "attention computes all positions at once: one step, whatever n is")
def steps_and_path(arch, n, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention") or n < 1 or k < 2:
        raise ValueError(arch)
    layers = 0
    while k**layers < n:
        layers += 1
    return {"rnn": (n, n - 1), "conv": (1, -(-(n - 1) // (k - 1))), "dilated_conv": (1, layers), "attention": (n, min(1, n - 1))}[arch]


@wrong("attention's path 0", "attention reaches any other position in one hop, not in none")
def steps_and_path(arch, n, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention") or n < 1 or k < 2:
        raise ValueError(arch)
    layers = 0
    while k**layers < n:
        layers += 1
    return {"rnn": (n, n - 1), "conv": (1, -(-(n - 1) // (k - 1))), "dilated_conv": (1, layers), "attention": (1, 0)}[arch]


@wrong("attention's path 1 at n = 1", "with one position there is nowhere to go: the path is 0, for attention too")
def steps_and_path(arch, n, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention") or n < 1 or k < 2:
        raise ValueError(arch)
    layers = 0
    while k**layers < n:
        layers += 1
    return {"rnn": (n, n - 1), "conv": (1, -(-(n - 1) // (k - 1))), "dilated_conv": (1, layers), "attention": (1, 1)}[arch]


@wrong("k ignored", "the window k is an argument: you calculate with 3 whatever it is")
def steps_and_path(arch, n, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention") or n < 1 or k < 2:
        raise ValueError(arch)
    layers = 0
    while 3**layers < n:
        layers += 1
    return {"rnn": (n, n - 1), "conv": (1, -(-(n - 1) // 2)), "dilated_conv": (1, layers), "attention": (1, min(1, n - 1))}[arch]


@wrong("path only", "two things are asked for, (steps, path); you returned the path alone")
def steps_and_path(arch, n, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention") or n < 1 or k < 2:
        raise ValueError(arch)
    layers = 0
    while k**layers < n:
        layers += 1
    return {"rnn": n - 1, "conv": -(-(n - 1) // (k - 1)), "dilated_conv": layers, "attention": min(1, n - 1)}[arch]


@wrong("any arch accepted", "a name that is none of the four should raise ValueError; yours is answered as if it were attention")
def steps_and_path(arch, n, k=3):
    if n < 1 or k < 2:
        raise ValueError(n)
    layers = 0
    while k**layers < n:
        layers += 1
    if arch == "rnn":
        return n, n - 1
    if arch == "conv":
        return 1, -(-(n - 1) // (k - 1))
    return (1, layers) if arch == "dilated_conv" else (1, min(1, n - 1))


@wrong("None for an unknown arch", "for an unknown arch your function falls through and returns None: raise ValueError")
def steps_and_path(arch, n, k=3):
    if n < 1 or k < 2:
        raise ValueError(n)
    layers = 0
    while k**layers < n:
        layers += 1
    if arch == "rnn":
        return n, n - 1
    if arch == "conv":
        return 1, -(-(n - 1) // (k - 1))
    if arch == "dilated_conv":
        return 1, layers
    if arch == "attention":
        return 1, min(1, n - 1)


@wrong("KeyError", "an unknown arch should raise ValueError; a dictionary raises KeyError, which is something else")
def steps_and_path(arch, n, k=3):
    if n < 1 or k < 2:
        raise ValueError(n)
    layers = 0
    while k**layers < n:
        layers += 1
    return {"rnn": (n, n - 1), "conv": (1, -(-(n - 1) // (k - 1))), "dilated_conv": (1, layers), "attention": (1, min(1, n - 1))}[arch]


@wrong("n below 1 accepted", "there are no sequences of 0 or -3 positions: n below 1 should raise ValueError")
def steps_and_path(arch, n, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention") or k < 2:
        raise ValueError(arch)
    layers = 0
    while k**layers < n:
        layers += 1
    return {"rnn": (n, n - 1), "conv": (1, -(-(n - 1) // (k - 1))), "dilated_conv": (1, layers), "attention": (1, min(1, n - 1))}[arch]


@wrong("n = 0 accepted", "n = 0 should raise ValueError as well as negative numbers")
def steps_and_path(arch, n, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention") or n < 0 or k < 2:
        raise ValueError(arch)
    layers = 0
    while k**layers < n:
        layers += 1
    return {"rnn": (n, n - 1), "conv": (1, -(-(n - 1) // (k - 1))), "dilated_conv": (1, layers), "attention": (1, min(1, n - 1))}[arch]


@wrong("k below 2 accepted", "a window of one position never reaches another: k below 2 should raise ValueError, for every arch")
def steps_and_path(arch, n, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention") or n < 1:
        raise ValueError(arch)
    layers = 0
    while k > 1 and k**layers < n:
        layers += 1
    return {"rnn": (n, n - 1), "conv": (1, -(-(n - 1) // max(1, k - 1))), "dilated_conv": (1, layers), "attention": (1, min(1, n - 1))}[arch]


@wrong("k = 2 refused", "k = 2 is a window: the current position and the one before it")
def steps_and_path(arch, n, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention") or n < 1 or k <= 2:
        raise ValueError("k must be larger than 2")
    layers = 0
    while k**layers < n:
        layers += 1
    return {"rnn": (n, n - 1), "conv": (1, -(-(n - 1) // (k - 1))), "dilated_conv": (1, layers), "attention": (1, min(1, n - 1))}[arch]


@right("powers")
def steps_and_path(arch, n, k=3):
    if n < 1 or k < 2:
        raise ValueError("n must be at least 1, k at least 2")
    if arch == "rnn":
        return n, n - 1
    if arch == "conv":
        return 1, -(-(n - 1) // (k - 1))
    if arch == "dilated_conv":
        layers = 0
        while k**layers < n:
            layers += 1
        return 1, layers
    if arch == "attention":
        return 1, min(1, n - 1)
    raise ValueError(f"unknown arch {arch!r}")


@right("math.ceil of a quotient")
def steps_and_path(arch, n, k=3):
    if arch not in {"rnn", "conv", "dilated_conv", "attention"} or n < 1 or k < 2:
        raise ValueError
    if n == 1:
        return (1, 0)
    if arch == "rnn":
        return (n, n - 1)
    if arch == "attention":
        return (1, 1)
    if arch == "conv":
        return (1, math.ceil((n - 1) / (k - 1)))
    covered, layers = 1, 0
    while covered < n:
        covered, layers = covered * k, layers + 1
    return (1, layers)


@right("layer by layer")
def steps_and_path(arch, n, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention") or n < 1 or k < 2:
        raise ValueError(arch)
    reach, path, spacing = 0, 0, 1
    while reach < n - 1:
        reach += {"rnn": 1, "attention": n, "conv": k - 1, "dilated_conv": (k - 1) * spacing}[arch]
        spacing *= k
        path += 1
    return [n if arch == "rnn" else 1, path]


@right("division down to one")
def steps_and_path(arch, n, k=3):
    if n < 1 or k < 2:
        raise ValueError(f"n = {n}, k = {k}")
    path, left = {"rnn": n - 1, "conv": (n + k - 3) // (k - 1), "dilated_conv": 0, "attention": int(n > 1)}, n
    while left > 1:
        left = (left + k - 1) // k
        path["dilated_conv"] += 1
    try:
        return (n if arch == "rnn" else 1), path[arch]
    except KeyError:
        raise ValueError(arch) from None


@right("logarithm, then mended")
def steps_and_path(arch, n, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention") or n < 1 or k < 2:
        raise ValueError(arch)
    layers = round(math.log(n) / math.log(k))
    layers += int(k**layers < n)
    path = {"rnn": n - 1, "conv": np.ceil((n - 1) / (k - 1)), "dilated_conv": layers, "attention": 0 if n == 1 else 1}
    return np.int64(n if arch == "rnn" else 1), path[arch]


@right("match")
def steps_and_path(arch, n, k=3):
    if n < 1 or k < 2:
        raise ValueError(f"n = {n}, k = {k}")
    match arch:
        case "rnn":
            return n, n - 1
        case "attention":
            return 1, int(n != 1)
        case "conv":
            return 1, sum(1 for _ in range(0, n - 1, k - 1))
        case "dilated_conv":
            return 1, next(layers for layers in range(n + 1) if k**layers >= n)
        case _:
            raise ValueError(arch)


@right("a dictionary of functions")
def steps_and_path(arch, n, k=3):
    from itertools import accumulate, repeat, takewhile

    paths = {
        "rnn": lambda: n - 1,
        "conv": lambda: len(range(1, n, k - 1)),
        "dilated_conv": lambda: len(list(takewhile(lambda covered: covered < n, accumulate(repeat(k), int.__mul__, initial=1)))),
        "attention": lambda: min(n - 1, 1),
    }
    if arch not in paths or min(n, k - 1) < 1:
        raise ValueError((arch, n, k))
    return {True: n, False: 1}[arch == "rnn"], paths[arch]()


@right("a NumPy array")
def steps_and_path(arch, n, k=3):
    if n < 1 or k < 2:
        raise ValueError("too small")
    steps = np.where(arch == "rnn", n, 1)
    if arch == "rnn":
        path = n - 1
    elif arch == "attention":
        path = np.sign(n - 1)
    elif arch == "conv":
        path = (n - 1 + k - 2) // (k - 1)
    elif arch == "dilated_conv":
        path = np.argmax(k ** np.arange(40, dtype=object) >= n)
    else:
        raise ValueError(arch)
    return int(steps), int(path)


# ---- layer_macs -----------------------------------------------------------------------------------------------


@wrong("projections forgotten", "attention's four projections are missing: queries, keys, values and output are n d^2 each")
def layer_macs(arch, n, d, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention"):
        raise ValueError(arch)
    return {"rnn": 2 * n * d**2, "conv": k * n * d**2, "dilated_conv": k * n * d**2, "attention": 2 * n**2 * d}[arch]


@wrong("three projections", "attention has four projections: the output is projected, too")
def layer_macs(arch, n, d, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention"):
        raise ValueError(arch)
    return {"rnn": 2 * n * d**2, "conv": k * n * d**2, "dilated_conv": k * n * d**2, "attention": 3 * n * d**2 + 2 * n**2 * d}[arch]


@wrong("scores only", "n^2 d is one of two products between positions: the scores; the weighted sum of the values is another n^2 d")
def layer_macs(arch, n, d, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention"):
        raise ValueError(arch)
    return {"rnn": 2 * n * d**2, "conv": k * n * d**2, "dilated_conv": k * n * d**2, "attention": 4 * n * d**2 + n**2 * d}[arch]


@wrong("as in the paper's table", "that is the order of growth, as in the paper's table; here every product is counted, with its factor")
def layer_macs(arch, n, d, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention"):
        raise ValueError(arch)
    return {"rnn": n * d**2, "conv": k * n * d**2, "dilated_conv": k * n * d**2, "attention": n**2 * d}[arch]


@wrong("one product per step", "a recurrent step has two products, of the token with W_x and of the state with W_h: 2 d^2")
def layer_macs(arch, n, d, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention"):
        raise ValueError(arch)
    return {"rnn": n * d**2, "conv": k * n * d**2, "dilated_conv": k * n * d**2, "attention": 4 * n * d**2 + 2 * n**2 * d}[arch]


@wrong("FLOPs", "you counted multiplications and additions apart; one multiply-add is one MAC, so this is twice too much")
def layer_macs(arch, n, d, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention"):
        raise ValueError(arch)
    return 2 * {"rnn": 2 * n * d**2, "conv": k * n * d**2, "dilated_conv": k * n * d**2, "attention": 4 * n * d**2 + 2 * n**2 * d}[arch]


@wrong("taps forgotten", "a convolution has one d x d matrix for each of its k taps")
def layer_macs(arch, n, d, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention"):
        raise ValueError(arch)
    return {"rnn": 2 * n * d**2, "conv": n * d**2, "dilated_conv": n * d**2, "attention": 4 * n * d**2 + 2 * n**2 * d}[arch]


@wrong("k ignored", "the number of taps k is an argument: you calculate with 3 whatever it is")
def layer_macs(arch, n, d, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention"):
        raise ValueError(arch)
    return {"rnn": 2 * n * d**2, "conv": 3 * n * d**2, "dilated_conv": 3 * n * d**2, "attention": 4 * n * d**2 + 2 * n**2 * d}[arch]


@wrong("unpadded windows", "every position has all k taps here: n windows, not the n - k + 1 that fit without padding")
def layer_macs(arch, n, d, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention"):
        raise ValueError(arch)
    conv = k * max(0, n - k + 1) * d**2
    return {"rnn": 2 * n * d**2, "conv": conv, "dilated_conv": conv, "attention": 4 * n * d**2 + 2 * n**2 * d}[arch]


@wrong("depthwise", "each tap is a d x d matrix that mixes the features, k n d^2; k n d would be a depthwise convolution")
def layer_macs(arch, n, d, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention"):
        raise ValueError(arch)
    return {"rnn": 2 * n * d**2, "conv": k * n * d, "dilated_conv": k * n * d, "attention": 4 * n * d**2 + 2 * n**2 * d}[arch]


@wrong("all layers of the dilated stack", "one layer is asked for; a dilated layer has k taps as any other, however far apart they are")
def layer_macs(arch, n, d, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention"):
        raise ValueError(arch)
    layers = 0
    while k**layers < n:
        layers += 1
    return {"rnn": 2 * n * d**2, "conv": k * n * d**2, "dilated_conv": layers * k * n * d**2, "attention": 4 * n * d**2 + 2 * n**2 * d}[arch]


@wrong("n and d swapped", "n and d are swapped: a weight matrix is d x d, and it is applied at n positions")
def layer_macs(arch, n, d, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention"):
        raise ValueError(arch)
    return {"rnn": 2 * d * n**2, "conv": k * d * n**2, "dilated_conv": k * d * n**2, "attention": 4 * d * n**2 + 2 * d**2 * n}[arch]


@wrong("any arch accepted", "a name that is none of the four should raise ValueError; yours is answered as if it were attention")
def layer_macs(arch, n, d, k=3):
    if arch == "rnn":
        return 2 * n * d**2
    return k * n * d**2 if arch in ("conv", "dilated_conv") else 4 * n * d**2 + 2 * n**2 * d


@wrong("None for an unknown arch", "for an unknown arch your function falls through and returns None: raise ValueError")
def layer_macs(arch, n, d, k=3):
    if arch == "rnn":
        return 2 * n * d**2
    if arch in ("conv", "dilated_conv"):
        return k * n * d**2
    if arch == "attention":
        return 4 * n * d**2 + 2 * n**2 * d


@wrong("KeyError", "an unknown arch should raise ValueError; a dictionary raises KeyError, which is something else")
def layer_macs(arch, n, d, k=3):
    return {"rnn": 2 * n * d**2, "conv": k * n * d**2, "dilated_conv": k * n * d**2, "attention": 4 * n * d**2 + 2 * n**2 * d}[arch]


@right("a chain of ifs")
def layer_macs(arch, n, d, k=3):
    if arch == "rnn":
        return 2 * n * d**2
    if arch in ("conv", "dilated_conv"):
        return k * n * d**2
    if arch == "attention":
        return 4 * n * d**2 + 2 * n**2 * d
    raise ValueError(f"unknown arch {arch!r}")


@right("dictionary")
def layer_macs(arch, n, d, k=3):
    counts = {"rnn": 2 * n * d * d, "conv": k * n * d * d, "dilated_conv": k * n * d * d}
    counts["attention"] = 2 * n * d * (2 * d + n)
    if arch not in counts:
        raise ValueError("arch must be one of " + ", ".join(counts))
    return counts[arch]


@right("products listed")
def layer_macs(arch, n, d, k=3):
    products = {
        "rnn": [(n, d, d)] * 2,
        "conv": [(n, k * d, d)],
        "dilated_conv": [(n, k * d, d)],
        "attention": [(n, d, 3 * d), (n, d, n), (n, n, d), (n, d, d)],
    }
    try:
        return sum(math.prod(sizes) for sizes in products[arch])
    except KeyError as error:
        raise ValueError(arch) from error


@right("floats")
def layer_macs(arch, n, d, k=3):
    if arch == "attention":
        return 4.0 * n * d**2 + 2.0 * n**2 * d
    if arch == "rnn":
        return n * (d * d + d * d)
    if arch.endswith("conv") and arch.removesuffix("conv") in ("", "dilated_"):
        return float(k) * n * d**2
    raise ValueError


@right("match")
def layer_macs(arch, n, d, k=3):
    match arch:
        case "rnn":
            per_token = d * d + d * d
        case "conv" | "dilated_conv":
            per_token = k * d * d
        case "attention":
            per_token = 3 * d * d + n * d + n * d + d * d
        case _:
            raise ValueError(f"no such layer: {arch}")
    return n * per_token


@right("looped over the tokens")
def layer_macs(arch, n, d, k=3):
    if arch not in ("rnn", "conv", "dilated_conv", "attention"):
        raise ValueError(arch)
    total = 0
    for _ in range(n):
        if arch == "attention":
            total += 4 * d**2 + 2 * n * d
        else:
            total += (2 if arch == "rnn" else k) * d**2
    return total


@right("NumPy integers")
def layer_macs(arch, n, d, k=3):
    n, d, k = (np.int64(size) for size in (n, d, k))
    macs = {"rnn": 2 * n * d**2, "attention": 4 * n * d**2 + 2 * d * n**2}
    macs.update(dict.fromkeys(["conv", "dilated_conv"], n * k * d**2))
    if macs.get(arch) is None:
        raise ValueError("unknown arch: " + str(arch))
    return macs[arch]


@right("a tensor of one number")
def layer_macs(arch, n, d, k=3):
    square = torch.tensor(n * d * d)
    if arch == "rnn":
        return square + square
    if arch in {"conv", "dilated_conv"}:
        return square * k
    if arch != "attention":
        raise ValueError(arch)
    return square * 4 + 2 * n * n * d


# ---- crossover_length -----------------------------------------------------------------------------------------


@wrong("n = d", "at n = d attention's part between positions is 2 d^3 and its projections are 4 d^3: not equal yet")
def crossover_length(d):
    return d


@wrong("scores only", "that counts one product between positions; there are two, the scores and the weighted sum: 2 n^2 d")
def crossover_length(d):
    return 4 * d


@wrong("half", "the equation is upside down: 2 n^2 d = 4 n d^2 gives n / d = 4 / 2")
def crossover_length(d):
    return d / 2


@wrong("three projections", "attention has four projections, with that of the output: 4 n d^2")
def crossover_length(d):
    return 3 * d / 2


@wrong("d squared", "both sides have a factor n and a factor d: divide them out")
def crossover_length(d):
    return d**2


@wrong("first n beyond", "asked for is the n at which the two parts are equal, not the first at which one is larger")
def crossover_length(d):
    n = 1
    while 2 * n**2 * d <= 4 * n * d**2:
        n += 1
    return n


@wrong("last n below", "asked for is the n at which the two parts are equal, not the last at which the projections are larger")
def crossover_length(d):
    return 2 * d - 1


@wrong("always 1024", "1024 is right for d = 512; the length depends on d")
def crossover_length(d):
    return 1024


@wrong("against a recurrent layer", "n = -d: you set attention equal to a recurrent layer, but it has more multiply-adds at every n")
def crossover_length(d):
    return -d


@right("twice d")
def crossover_length(d):
    return 2 * d


@right("from the two terms")
def crossover_length(d):
    projections, between = 4 * d**2, 2 * d
    return projections // between


@right("search")
def crossover_length(d):
    n = 1
    while 2 * n**2 * d < 4 * n * d**2:
        n += 1
    return n


@right("root of a quadratic")
def crossover_length(d):
    a, b = 2 * d, -4 * d**2
    return (-b + math.sqrt(b**2)) / (2 * a)


@right("float")
def crossover_length(d):
    return float(d + d)


@right("bisection")
def crossover_length(d):
    low, high = 0.0, 100.0 * d
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if 2 * middle * middle * d < 4 * middle * d * d else (low, middle)
    return high


@right("np.roots")
def crossover_length(d):
    return max(np.roots([2 * d, -4 * d**2, 0]).real)


@right("a tensor of one number")
def crossover_length(d):
    return torch.tensor(2 * d)


@wrong("squares compared", "2 n^2 d = 4 n d^2 has an n and a d on both sides: divide by both, and no square is left")
def crossover_length(d):
    return math.sqrt(2) * d


@wrong("root", "n appears squared on one side and once on the other: divide by n, and no root is left")
def crossover_length(d):
    return math.sqrt(2 * d)


@wrong("against a convolution", "asked is when attention's own two parts are equal, not when it costs what a convolution of width 3 does")
def crossover_length(d):
    return -d / 2
