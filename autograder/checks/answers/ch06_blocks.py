"""Chapter 6: right answers that look different, and the mistakes learners make."""

import torch
import torch.nn.functional as F
from torch import nn

from autograder.checks import given
from autograder.checks.catalogue import changed, right, wrong

# ---- layer_norm -----------------------------------------------------------------------------------------------------


@right("mean and biased variance")
def layer_norm(x, gamma, beta, eps=1e-5):
    mean = x.mean(dim=-1, keepdim=True)
    variance = x.var(dim=-1, unbiased=False, keepdim=True)
    return gamma * (x - mean) / torch.sqrt(variance + eps) + beta


_NORM = layer_norm
RETURN = "    return gamma * (x - mean) / torch.sqrt(variance + eps) + beta\n"
MEAN = "    mean = x.mean(dim=-1, keepdim=True)\n"
VARIANCE = "    variance = x.var(dim=-1, unbiased=False, keepdim=True)\n"

changed(
    _NORM,
    "unbiased variance",
    "you divide the sum of squares by d - 1, torch's default; layer norm divides by d: unbiased=False",
    ("unbiased=False, ", ""),
)
changed(
    _NORM,
    "eps outside the root",
    "eps stands outside the root; it is added to the variance, under it",
    ("torch.sqrt(variance + eps)", "(torch.sqrt(variance) + eps)"),
)
changed(
    _NORM,
    "no eps",
    "eps is left out: a row whose features are all the same divides 0 by 0",
    ("variance + eps", "variance"),
)
changed(
    _NORM,
    "eps fixed",
    "eps is fixed to 1e-5 in your code; use the argument",
    ("variance + eps", "variance + 1e-5"),
)
changed(
    _NORM,
    "eps as the least variance",
    "eps is the least variance in your code; it is added to the variance",
    ("variance + eps", "variance.clamp(min=eps)"),
)
changed(_NORM, "no gamma", "gamma is left out", ("gamma * (x - mean)", "(x - mean)"))
changed(_NORM, "no beta", "beta is left out", (" + beta", ""))
changed(
    _NORM, "neither gamma nor beta", "gamma and beta are both left out", ("gamma * (x", "(x"), (" + beta", "")
)
changed(
    _NORM,
    "gamma and beta swapped",
    "gamma and beta have changed places: gamma multiplies, beta is added",
    ("gamma * (x", "beta * (x"),
    (" + beta", " + gamma"),
)
changed(
    _NORM,
    "1 + gamma",
    "you multiply by 1 + gamma; gamma itself is the factor",
    ("gamma * (x", "(1 + gamma) * (x"),
)
changed(
    _NORM,
    "beta before gamma",
    "beta is added before gamma multiplies; it comes last",
    (RETURN, "    return gamma * ((x - mean) / torch.sqrt(variance + eps) + beta)\n"),
)
changed(
    _NORM,
    "gamma and beta before the norm",
    "gamma and beta act on x before it is normalised; they come after",
    (MEAN, "    x = gamma * x + beta\n" + MEAN),
    (RETURN, "    return (x - mean) / torch.sqrt(variance + eps)\n"),
)
changed(
    _NORM,
    "divided by the variance",
    "you divide by the variance; divide by its root, the standard deviation",
    ("torch.sqrt(variance + eps)", "(variance + eps)"),
)
changed(
    _NORM,
    "mean not subtracted",
    "the mean is not subtracted from x",
    ("(x - mean)", "x"),
)
changed(
    _NORM,
    "root mean square",
    "you divide x by its root mean square (RMSNorm); layer norm subtracts the mean, also inside the variance",
    (VARIANCE, "    variance = x.square().mean(dim=-1, keepdim=True)\n"),
    ("(x - mean)", "x"),
)
changed(
    _NORM,
    "mean square for variance",
    "that is the mean of the squares; for the variance, subtract the mean first",
    (VARIANCE, "    variance = x.square().mean(dim=-1, keepdim=True)\n"),
)
changed(
    _NORM,
    "mean absolute deviation",
    "you divide by the mean distance from the mean; the standard deviation is the root of the mean square",
    ("torch.sqrt(variance + eps)", "((x - mean).abs().mean(dim=-1, keepdim=True) + eps)"),
)
changed(
    _NORM,
    "over the sequence",
    "mean and variance run over the positions; they belong to one token: its features, the last axis",
    (MEAN, "    mean = x.mean(dim=max(x.dim() - 2, 0), keepdim=True)\n"),
    (VARIANCE, "    variance = x.var(dim=max(x.dim() - 2, 0), unbiased=False, keepdim=True)\n"),
)
changed(
    _NORM,
    "over the batch",
    "mean and variance run over the batch, as in BatchNorm; they belong to one token: the last axis",
    ("x.mean(dim=-1", "x.mean(dim=0"),
    ("x.var(dim=-1", "x.var(dim=0"),
)
changed(
    _NORM,
    "over everything",
    "one mean and one variance for the whole tensor; every token has its own: dim=-1, keepdim=True",
    (MEAN, "    mean = x.mean()\n"),
    (VARIANCE, "    variance = x.var(unbiased=False)\n"),
)
changed(
    _NORM,
    "over tokens and features",
    "mean and variance run over all tokens of a sequence; each token has its own",
    (MEAN, "    axes = tuple(range(1, x.dim())) or (0,)\n    mean = x.mean(dim=axes, keepdim=True)\n"),
    (VARIANCE, "    variance = x.var(dim=axes, unbiased=False, keepdim=True)\n"),
)
changed(
    _NORM,
    "dim=2",
    "dim=2 is the last axis of a batch of sequences only; dim=-1 is the last axis of any input",
    ("x.mean(dim=-1", "x.mean(dim=min(2, x.dim() - 1)"),
    ("x.var(dim=-1", "x.var(dim=min(2, x.dim() - 1)"),
)
changed(
    _NORM,
    "no keepdim",
    "mean and variance have lost their last axis, so they meet the wrong numbers: keepdim=True",
    (MEAN, "    mean = x.mean(dim=-1)\n"),
    ("unbiased=False, keepdim=True", "unbiased=False"),
)
changed(
    _NORM,
    "statistics detached",
    "no gradient goes through mean and variance in your code; they depend on x",
    (MEAN, "    mean = x.mean(dim=-1, keepdim=True).detach()\n"),
    (VARIANCE, "    variance = x.detach().var(dim=-1, unbiased=False, keepdim=True)\n"),
)
changed(
    _NORM,
    "float32 hard-coded",
    "the result is float32 whatever the input is; keep the input's dtype",
    (MEAN, "    x, gamma, beta = x.float(), gamma.float(), beta.float()\n" + MEAN),
)
changed(
    _NORM,
    "float32 inside",
    "float64 goes through float32 on its way: the last digits are lost",
    (MEAN, "    dtype, x = x.dtype, x.float()\n" + MEAN),
    (RETURN, "    return (gamma * (x - mean) / torch.sqrt(variance + eps) + beta).to(dtype)\n"),
)
changed(
    _NORM,
    "in place",
    "your function changes x itself (-= or sub_): make a new tensor",
    (RETURN, "    x.data -= mean\n    return gamma * x / torch.sqrt(variance + eps) + beta\n"),
)
changed(
    _NORM,
    "detached",
    "the result carries no gradient: NumPy, .detach() and .data cut the graph",
    (RETURN, "    return (gamma * (x - mean) / torch.sqrt(variance + eps) + beta).detach()\n"),
)


@right("centred first")
def layer_norm(x, gamma, beta, eps=1e-5):
    centred = x - x.mean(dim=-1, keepdim=True)
    return gamma * centred * torch.rsqrt(centred.square().mean(dim=-1, keepdim=True) + eps) + beta


@right("mean of squares minus square of mean")
def layer_norm(x, gamma, beta, eps=1e-5):
    mean = x.mean(-1, keepdim=True)
    variance = x.pow(2).mean(-1, keepdim=True) - mean.pow(2)
    return gamma * ((x - mean) / (variance + eps) ** 0.5) + beta


@right("var_mean")
def layer_norm(x, gamma, beta, eps=1e-5):
    variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    return torch.addcmul(beta, gamma, (x - mean) / (variance + eps).sqrt())


@right("sums")
def layer_norm(x, gamma, beta, eps=1e-5):
    d = x.shape[-1]
    mean = x.sum(dim=-1, keepdim=True) / d
    variance = ((x - mean) ** 2).sum(dim=-1, keepdim=True) / d
    return (x - mean) / torch.sqrt(variance + eps) * gamma + beta


@right("torch's own")
def layer_norm(x, gamma, beta, eps=1e-5):
    return F.layer_norm(x, (x.shape[-1],), gamma, beta, eps)


@right("token by token")
def layer_norm(x, gamma, beta, eps=1e-5):
    rows = []
    for row in x.reshape(-1, x.shape[-1]).unbind(0):
        centred = row - row.mean()
        rows.append(centred / ((centred * centred).mean() + eps).sqrt() * gamma + beta)
    return torch.stack(rows).reshape(x.shape)


@right("float64 inside")
def layer_norm(x, gamma, beta, eps=1e-5):
    wide = x.double()
    centred = wide - wide.mean(dim=-1, keepdim=True)
    scaled = centred / (centred.var(dim=-1, correction=0, keepdim=True) + eps).sqrt()
    return (scaled * gamma.double() + beta.double()).to(x.dtype)


@right("the unbiased variance, mended")
def layer_norm(x, gamma, beta, eps=1e-5):
    d = x.shape[-1]
    mean, std = x.mean(dim=-1, keepdim=True), x.std(dim=-1, keepdim=True)
    return gamma * (x - mean) / (std**2 * (d - 1) / d + eps).sqrt() + beta


@right("the axis moved to the front")
def layer_norm(x, gamma, beta, eps=1e-5):
    x = x.movedim(-1, 0)
    x = (x - x.mean(0)) / (x.var(0, unbiased=False) + eps).sqrt()
    return x.movedim(0, -1) * gamma + beta


# ---- FeedForward ----------------------------------------------------------------------------------------------------


@right("two layers")
class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff, activation=F.relu):
        super().__init__()
        self.W_1 = nn.Linear(d_model, d_ff)
        self.W_2 = nn.Linear(d_ff, d_model)
        self.activation = activation

    def forward(self, x):
        hidden = self.activation(self.W_1(x))
        return self.W_2(hidden)


_FEED = FeedForward
HIDDEN = "        hidden = self.activation(self.W_1(x))\n"

changed(
    _FEED,
    "no activation",
    "there is no activation between the layers: two linear maps in a row are one linear map",
    (HIDDEN, "        hidden = self.W_1(x)\n"),
)
changed(
    _FEED,
    "GELU for ReLU",
    "the default activation is F.gelu in your code; the exercise asks for F.relu",
    ("activation=F.relu", "activation=F.gelu"),
)
changed(
    _FEED,
    "activation ignored",
    "it is always F.relu in your code: keep the argument `activation` and use it",
    ("self.activation(self.W_1", "F.relu(self.W_1"),
)
changed(
    _FEED,
    "activation at the end, too",
    "there is an activation after W_2; it stands between the layers only",
    ("return self.W_2(hidden)", "return self.activation(self.W_2(hidden))"),
)
changed(
    _FEED,
    "activation at the wrong place",
    "the activation acts on the output; it belongs between W_1 and W_2",
    (HIDDEN, "        hidden = self.W_1(x)\n"),
    ("return self.W_2(hidden)", "return self.activation(self.W_2(hidden))"),
)
changed(
    _FEED,
    "activation first",
    "the activation acts on the input x; it belongs between W_1 and W_2",
    (HIDDEN, "        hidden = self.W_1(self.activation(x))\n"),
)
changed(
    _FEED,
    "residual inside",
    "x is added to the output; the residual connection is the block's business",
    ("return self.W_2(hidden)", "return x + self.W_2(hidden)"),
)
changed(
    _FEED,
    "widths swapped",
    "W_1 goes from d_model to d_ff and W_2 back; yours go the other way",
    ("nn.Linear(d_model, d_ff)", "nn.Linear(d_ff, d_model)"),
    ("self.W_2 = nn.Linear(d_ff, d_model)", "self.W_2 = nn.Linear(d_model, d_ff)"),
)
changed(
    _FEED,
    "never widened",
    "d_ff is not used: W_1 goes from d_model to d_ff",
    ("nn.Linear(d_model, d_ff)", "nn.Linear(d_model, d_model)"),
    ("nn.Linear(d_ff, d_model)", "nn.Linear(d_model, d_model)"),
)
changed(
    _FEED,
    "always four times as wide",
    "the hidden width is 4 d_model in your code; it is the argument d_ff",
    ("nn.Linear(d_model, d_ff)", "nn.Linear(d_model, 4 * d_model)"),
    ("nn.Linear(d_ff, d_model)", "nn.Linear(4 * d_model, d_model)"),
)
changed(
    _FEED,
    "no biases",
    "the layers have no biases; both have one, b_1 and b_2",
    ("nn.Linear(d_model, d_ff)", "nn.Linear(d_model, d_ff, bias=False)"),
    ("nn.Linear(d_ff, d_model)", "nn.Linear(d_ff, d_model, bias=False)"),
)
changed(
    _FEED,
    "W_2 without bias",
    "W_2 has no bias; the formula ends with + b_2",
    ("nn.Linear(d_ff, d_model)", "nn.Linear(d_ff, d_model, bias=False)"),
)
changed(
    _FEED,
    "layers made in forward",
    "forward makes new layers at every call, with new random weights: make them in __init__",
    (HIDDEN, "        self.W_1 = nn.Linear(*self.W_1.weight.T.shape).to(x.dtype)\n" + HIDDEN),
)
changed(
    _FEED,
    "other names",
    "the layers have other names; the exercise asks for the attributes W_1 and W_2",
    ("self.W_1 = ", "self.linear1 = "),
    ("self.W_2 = ", "self.linear2 = "),
    ("self.W_1(x)", "self.linear1(x)"),
    ("self.W_2(hidden)", "self.linear2(hidden)"),
)
changed(
    _FEED,
    "dropout inside",
    "a fixed dropout acts on the hidden layer; the exercise has none in here",
    ("return self.W_2(hidden)", "return self.W_2(F.dropout(hidden, 0.1, self.training))"),
)
changed(
    _FEED,
    "normalised inside",
    "the input is normalised in here; the norms belong to the block",
    ("self.W_1(x)", "self.W_1(F.layer_norm(x, x.shape[-1:]))"),
)
changed(
    _FEED,
    "positions mixed",
    "a position's output depends on other positions: the hidden layer is summed up along the sequence",
    ("return self.W_2(hidden)", "return self.W_2(hidden.cumsum(dim=-2))"),
)
changed(
    _FEED,
    "W_2 left out",
    "the hidden layer is returned; W_2 brings it back to d_model features",
    ("return self.W_2(hidden)", "return hidden"),
)
changed(
    _FEED,
    "detached hidden layer",
    "the hidden layer is detached: no gradient reaches W_1",
    ("self.W_2(hidden)", "self.W_2(hidden.detach())"),
)
changed(
    _FEED,
    "layers hidden in a lambda",
    "W_1 and W_2 are functions, not nn.Linear layers, so the module has no parameters",
    ("self.W_1 = nn.Linear(d_model, d_ff)", "W_1 = nn.Linear(d_model, d_ff)"),
    (
        "self.W_2 = nn.Linear(d_ff, d_model)",
        "W_2 = nn.Linear(d_ff, d_model)\n        self.W_1, self.W_2 = lambda x: W_1(x), lambda x: W_2(x)",
    ),
)


@right("in one line")
class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff, activation=F.relu):
        super().__init__()
        self.W_1, self.W_2, self.act = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model), activation

    def forward(self, x):
        return self.W_2(self.act(self.W_1(x)))


@right("W_2 made first")
class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff, activation=F.relu):
        super().__init__()
        self.activation, self.sizes = activation, (d_model, d_ff)
        self.W_2 = nn.Linear(d_ff, d_model, bias=True)
        self.W_1 = nn.Linear(d_model, d_ff, bias=True)

    def forward(self, x):
        x = self.W_1(x)
        x = self.activation(x)
        return self.W_2(x)


@right("a sequential beside the names")
class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff, activation=torch.relu):
        super().__init__()
        self.W_1, self.W_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.activation = activation
        self.layers = nn.ModuleList([self.W_1, self.W_2])

    def forward(self, x):
        first, second = self.layers
        return second(self.activation(first(x)))


@right("max(0, ...) by clamp")
class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff, activation=lambda x: x.clamp(min=0)):
        super().__init__()
        self.W_1, self.W_2, self.f = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model), activation

    def forward(self, x):
        return F.linear(self.f(F.linear(x, self.W_1.weight, self.W_1.bias)), self.W_2.weight, self.W_2.bias)


@right("position by position")
class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff, activation=F.relu):
        super().__init__()
        self.W_1, self.W_2, self.activation = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model), activation

    def forward(self, x):
        return torch.stack([self.W_2(self.activation(self.W_1(token))) for token in x.unbind(dim=-2)], dim=-2)


@right("None stands for ReLU")
class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff, activation=None):
        super().__init__()
        self.W_1, self.W_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.activation = nn.ReLU() if activation is None else activation

    def forward(self, x):
        return self.W_2(self.activation(self.W_1(x)))


@right("matrix products with the transposed weights")
class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff, activation=F.relu):
        super().__init__()
        self.W_1, self.W_2, self.activation = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model), activation

    def forward(self, x):
        hidden = self.activation(x @ self.W_1.weight.T + self.W_1.bias)
        return hidden @ self.W_2.weight.T + self.W_2.bias


@right("einsum")
class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff, activation=torch.relu):
        super().__init__()
        self.W_1, self.W_2, self.activation = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model), activation

    def forward(self, x):
        hidden = self.activation(torch.einsum("...d,fd->...f", x, self.W_1.weight) + self.W_1.bias)
        return torch.einsum("...f,df->...d", hidden, self.W_2.weight) + self.W_2.bias


@right("all tokens in one long row")
class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff, activation=F.relu):
        super().__init__()
        self.W_1 = nn.Linear(in_features=d_model, out_features=d_ff)
        self.W_2 = nn.Linear(in_features=d_ff, out_features=d_model)
        self.activation = activation

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        return self.W_2(self.activation(self.W_1(rows))).reshape(x.shape)


# ---- EncoderBlock ---------------------------------------------------------------------------------------------------

MultiHeadAttention, FeedForward = given.MultiHeadAttention, given.FeedForward


@right("two branches")
class EncoderBlock(nn.Module):
    def __init__(self, d_model, h, d_ff, dropout=0.1, norm="post"):
        super().__init__()
        if norm not in ("post", "pre"):
            raise ValueError(f'norm is "post" or "pre", not {norm!r}')
        self.attention = MultiHeadAttention(d_model, h)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.dropout, self.norm = nn.Dropout(dropout), norm

    def forward(self, x, mask=None):
        if self.norm == "post":
            x = self.norm1(x + self.dropout(self.attention(x, mask=mask)[0]))
            return self.norm2(x + self.dropout(self.feed_forward(x)))
        y = x + self.dropout(self.attention(self.norm1(x), mask=mask)[0])
        return y + self.dropout(self.feed_forward(self.norm2(y)))


_BLOCK = EncoderBlock
POST_1 = "x = self.norm1(x + self.dropout(self.attention(x, mask=mask)[0]))"
POST_2 = "return self.norm2(x + self.dropout(self.feed_forward(x)))"
PRE_1 = "y = x + self.dropout(self.attention(self.norm1(x), mask=mask)[0])"
PRE_2 = "return y + self.dropout(self.feed_forward(self.norm2(y)))"

changed(
    _BLOCK,
    "always post",
    "norm=\"pre\" still normalises after the sum: pre-LN is x + Sublayer(LayerNorm(x))",
    ('if self.norm == "post"', "if True"),
)
changed(
    _BLOCK,
    "always pre",
    "norm=\"post\" normalises before the sub-layers: post-LN is LayerNorm(x + Sublayer(x))",
    ('if self.norm == "post"', "if False"),
)
changed(
    _BLOCK,
    "post and pre swapped",
    "\"post\" and \"pre\" have changed places: post-LN normalises the sum, pre-LN the sub-layer's input",
    ('if self.norm == "post"', 'if self.norm == "pre"'),
)
changed(
    _BLOCK,
    "pre by default",
    "the default is norm=\"post\", as in the paper; yours is \"pre\"",
    ('norm="post"):', 'norm="pre"):'),
)
changed(
    _BLOCK,
    "no residual",
    "no sub-layer's input is added to its output: the residual connections are missing",
    (POST_1, "x = self.norm1(self.dropout(self.attention(x, mask=mask)[0]))"),
    (POST_2, "return self.norm2(self.dropout(self.feed_forward(x)))"),
    (PRE_1, "y = self.dropout(self.attention(self.norm1(x), mask=mask)[0])"),
    (PRE_2, "return self.dropout(self.feed_forward(self.norm2(y)))"),
)
changed(
    _BLOCK,
    "no residual around attention",
    "the residual connection around the attention is missing",
    (POST_1, "x = self.norm1(self.dropout(self.attention(x, mask=mask)[0]))"),
    (PRE_1, "y = self.dropout(self.attention(self.norm1(x), mask=mask)[0])"),
)
changed(
    _BLOCK,
    "no residual around the feed-forward network",
    "the residual connection around the feed-forward network is missing",
    (POST_2, "return self.norm2(self.dropout(self.feed_forward(x)))"),
    (PRE_2, "return self.dropout(self.feed_forward(self.norm2(y)))"),
)
changed(
    _BLOCK,
    "residual from the block's input",
    "the second sum adds the block's input; it adds what came out of the first sub-layer",
    (POST_1, POST_1.replace("x = ", "y = ", 1)),
    (POST_2, "return self.norm2(x + self.dropout(self.feed_forward(y)))"),
    (PRE_2, "return x + self.dropout(self.feed_forward(self.norm2(y)))"),
)
changed(
    _BLOCK,
    "side by side",
    "both sub-layers read the block's input; the feed-forward network reads what the attention left",
    (POST_2, "return self.norm2(x + self.dropout(self.feed_forward(inner)))"),
    (POST_1, "inner = x\n            " + POST_1),
    (PRE_2, "return y + self.dropout(self.feed_forward(self.norm2(x)))"),
)
changed(
    _BLOCK,
    "norm of x plus the sub-layer",
    "post-LN normalises the sum; you normalise x alone and then add: norm(x) + Sublayer(x)",
    (POST_1, "x = self.norm1(x) + self.dropout(self.attention(x, mask=mask)[0])"),
    (POST_2, "return self.norm2(x) + self.dropout(self.feed_forward(x))"),
)
changed(
    _BLOCK,
    "norm of the sub-layer plus x",
    "post-LN normalises the sum; you normalise only what the sub-layer says: x + norm(Sublayer(x))",
    (POST_1, "x = x + self.norm1(self.dropout(self.attention(x, mask=mask)[0]))"),
    (POST_2, "return x + self.norm2(self.dropout(self.feed_forward(x)))"),
)
changed(
    _BLOCK,
    "residual from the normalised x",
    "in pre-LN you add LayerNorm(x) back; the residual connection carries x itself",
    (PRE_1, "y = self.norm1(x)\n        y = y + self.dropout(self.attention(y, mask=mask)[0])"),
    (PRE_2, "y = self.norm2(y)\n        return y + self.dropout(self.feed_forward(y))"),
)
changed(
    _BLOCK,
    "pre and post together",
    "in pre-LN you normalise the sum as well; the sum stays as it is",
    (PRE_1, "y = self.norm1(x + self.dropout(self.attention(self.norm1(x), mask=mask)[0]))"),
    (PRE_2, "return self.norm2(y + self.dropout(self.feed_forward(self.norm2(y))))"),
)
changed(
    _BLOCK,
    "a final norm in every block",
    "in pre-LN your block ends with a norm; the final norm stands once, after the last block of the stack",
    (PRE_2, "return self.norm2(y + self.dropout(self.feed_forward(self.norm2(y))))"),
)
changed(
    _BLOCK,
    "norms swapped",
    "norm1 and norm2 have changed places: norm1 belongs to the attention",
    (POST_1, POST_1.replace("norm1", "norm2")),
    (POST_2, POST_2.replace("norm2", "norm1")),
    (PRE_1, PRE_1.replace("norm1", "norm2")),
    (PRE_2, PRE_2.replace("norm2", "norm1")),
)
changed(
    _BLOCK,
    "one norm for both",
    "norm2 is never used: each sub-layer has a norm of its own",
    (POST_2, POST_2.replace("norm2", "norm1")),
    (PRE_2, PRE_2.replace("norm2", "norm1")),
)
changed(
    _BLOCK,
    "no norms",
    "nothing is normalised",
    (POST_1, "x = x + self.dropout(self.attention(x, mask=mask)[0])"),
    (POST_2, "return x + self.dropout(self.feed_forward(x))"),
    (PRE_1, "y = x + self.dropout(self.attention(x, mask=mask)[0])"),
    (PRE_2, "return y + self.dropout(self.feed_forward(y))"),
)
changed(
    _BLOCK,
    "only the query normalised",
    "in pre-LN only the query is normalised; queries, keys and values all come from LayerNorm(x)",
    (PRE_1, "y = x + self.dropout(self.attention(self.norm1(x), x, x, mask=mask)[0])"),
)
changed(
    _BLOCK,
    "feed-forward network first",
    "the feed-forward network comes before the attention; attention is the first sub-layer",
    (POST_1, "x = self.norm2(x + self.dropout(self.feed_forward(x)))"),
    (POST_2, "return self.norm1(x + self.dropout(self.attention(x, mask=mask)[0]))"),
    (PRE_1, "y = x + self.dropout(self.feed_forward(self.norm2(x)))"),
    (PRE_2, "return y + self.dropout(self.attention(self.norm1(y), mask=mask)[0])"),
)
changed(
    _BLOCK,
    "mask dropped",
    "the mask does not reach the attention",
    (POST_1, POST_1.replace(", mask=mask", "")),
    (PRE_1, PRE_1.replace(", mask=mask", "")),
)
changed(
    _BLOCK,
    "mask upside down",
    "the mask is inverted on its way: True means may attend, here and in the given attention",
    (POST_1, POST_1.replace("mask=mask", "mask=None if mask is None else ~mask")),
    (PRE_1, PRE_1.replace("mask=mask", "mask=None if mask is None else ~mask")),
)
changed(
    _BLOCK,
    "no dropout",
    "nothing is dropped in train mode",
    ("nn.Dropout(dropout)", "nn.Identity()"),
)
changed(
    _BLOCK,
    "dropout on the attention only",
    "the feed-forward network's output goes without dropout",
    (POST_2, "return self.norm2(x + self.feed_forward(x))"),
    (PRE_2, "return y + self.feed_forward(self.norm2(y))"),
)
changed(
    _BLOCK,
    "dropout on the feed-forward network only",
    "the attention's output goes without dropout",
    (POST_1, "x = self.norm1(x + self.attention(x, mask=mask)[0])"),
    (PRE_1, "y = x + self.attention(self.norm1(x), mask=mask)[0]"),
)
changed(
    _BLOCK,
    "dropout on the sum",
    "dropout hits the residual connection, too; it belongs on the sub-layer's output before the sum",
    (POST_1, "x = self.norm1(self.dropout(x + self.attention(x, mask=mask)[0]))"),
    (POST_2, "return self.norm2(self.dropout(x + self.feed_forward(x)))"),
    (PRE_1, "y = self.dropout(x + self.attention(self.norm1(x), mask=mask)[0])"),
    (PRE_2, "return self.dropout(y + self.feed_forward(self.norm2(y)))"),
)
changed(
    _BLOCK,
    "dropout on the sub-layer's input",
    "dropout hits what the sub-layer reads; it belongs on what it says",
    (POST_1, "x = self.norm1(x + self.attention(self.dropout(x), mask=mask)[0])"),
    (POST_2, "return self.norm2(x + self.feed_forward(self.dropout(x)))"),
    (PRE_1, "y = x + self.attention(self.dropout(self.norm1(x)), mask=mask)[0]"),
    (PRE_2, "return y + self.feed_forward(self.dropout(self.norm2(y)))"),
)
changed(
    _BLOCK,
    "dropout in eval mode",
    "dropout is at work in eval mode: F.dropout needs training=self.training, nn.Dropout does it by itself",
    ("nn.Dropout(dropout)", "lambda y: F.dropout(y, dropout)"),
)
changed(
    _BLOCK,
    "dropout fixed",
    "the rate is 0.1 whatever is asked for: use the argument `dropout`",
    ("nn.Dropout(dropout)", "nn.Dropout(0.1)"),
)
changed(
    _BLOCK,
    "another default rate",
    "the default dropout is 0.1; yours is another",
    ("dropout=0.1", "dropout=0.5"),
)
changed(
    _BLOCK,
    "tokens dropped whole",
    "your dropout sets whole tokens to 0; each number is dropped by itself",
    ("nn.Dropout(dropout)", "nn.Dropout1d(dropout)"),
)
changed(
    _BLOCK,
    "no check of norm",
    "a norm other than \"post\" and \"pre\" is taken without a word: raise a ValueError",
    ('if norm not in ("post", "pre")', "if False"),
)
changed(
    _BLOCK,
    "assert",
    "norm is checked with an assert; the exercise asks for a ValueError",
    ('if norm not in ("post", "pre"):\n            raise ValueError(f\'norm is "post" or "pre", not {norm!r}\')',
     'assert norm in ("post", "pre")'),
)
changed(
    _BLOCK,
    "one head",
    "the attention has one head whatever h is",
    ("MultiHeadAttention(d_model, h)", "MultiHeadAttention(d_model, 1)"),
)
changed(
    _BLOCK,
    "feed-forward network with GELU",
    "the feed-forward network has GELU; the paper's, and the default here, is ReLU",
    ("FeedForward(d_model, d_ff)", "FeedForward(d_model, d_ff, F.gelu)"),
)
changed(
    _BLOCK,
    "x changed in place",
    "your block writes into x, which belongs to the caller: y = x + ..., not x += ...",
    (POST_1, "x.data += self.dropout(self.attention(x, mask=mask)[0])\n            x = self.norm1(x)"),
    (PRE_1, "x.data += self.dropout(self.attention(self.norm1(x), mask=mask)[0])\n        y = x"),
)
changed(
    _BLOCK,
    "attention detached",
    "no gradient goes through the attention",
    (POST_1, POST_1.replace("mask=mask)[0]", "mask=mask)[0].detach()")),
    (PRE_1, PRE_1.replace("mask=mask)[0]", "mask=mask)[0].detach()")),
)
changed(
    _BLOCK,
    "layers in a plain list",
    "the norms lie in a plain list, so the module does not know them: no attribute norm1, no parameters",
    (
        "self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)",
        "self.norms = [nn.LayerNorm(d_model), nn.LayerNorm(d_model)]",
    ),
    (POST_1, POST_1.replace("norm1", "norms[0]")),
    (POST_2, POST_2.replace("norm2", "norms[1]")),
    (PRE_1, PRE_1.replace("norm1", "norms[0]")),
    (PRE_2, PRE_2.replace("norm2", "norms[1]")),
)


@right("a helper for one sub-layer")
class EncoderBlock(nn.Module):
    def __init__(self, d_model, h, d_ff, dropout=0.1, norm="post"):
        super().__init__()
        if norm != "post" and norm != "pre":
            raise ValueError(norm)
        self.attention, self.feed_forward = MultiHeadAttention(d_model, h), FeedForward(d_model, d_ff)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.dropout, self.pre = nn.Dropout(dropout), norm == "pre"

    def add(self, x, norm, sublayer):
        if self.pre:
            return x + self.dropout(sublayer(norm(x)))
        return norm(x + self.dropout(sublayer(x)))

    def forward(self, x, mask=None):
        x = self.add(x, self.norm1, lambda y: self.attention(y, mask=mask)[0])
        return self.add(x, self.norm2, self.feed_forward)


@right("two dropouts")
class EncoderBlock(nn.Module):
    def __init__(self, d_model, h, d_ff, dropout=0.1, norm="post"):
        super().__init__()
        if norm not in {"post", "pre"}:
            raise ValueError("norm")
        self.norm = norm
        self.attention = MultiHeadAttention(d_model, h)
        self.dropout1, self.dropout2 = nn.Dropout(dropout), nn.Dropout(dropout)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.feed_forward = FeedForward(d_model, d_ff)

    def forward(self, x, mask=None):
        y = self.norm1(x) if self.norm == "pre" else x
        x = x + self.dropout1(self.attention(y, y, y, mask)[0])
        if self.norm == "post":
            x = self.norm1(x)
        y = self.norm2(x) if self.norm == "pre" else x
        x = x + self.dropout2(self.feed_forward(y))
        return self.norm2(x) if self.norm == "post" else x


@right("F.dropout with training")
class EncoderBlock(nn.Module):
    def __init__(self, d_model, h, d_ff, dropout=0.1, norm="post"):
        super().__init__()
        if norm not in ["post", "pre"]:
            raise ValueError(f"unknown norm {norm}")
        self.attention = MultiHeadAttention(d_model, h)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.p, self.norm = dropout, norm

    def forward(self, x, mask=None):
        drop = lambda y: F.dropout(y, self.p, training=self.training)
        if self.norm == "pre":
            x = x + drop(self.attention(self.norm1(x), mask=mask)[0])
            x = x + drop(self.feed_forward(self.norm2(x)))
        else:
            x = self.norm1(x + drop(self.attention(x, mask=mask)[0]))
            x = self.norm2(x + drop(self.feed_forward(x)))
        return x


@right("the forward chosen in __init__")
class EncoderBlock(nn.Module):
    def __init__(self, d_model, h, d_ff, dropout=0.1, norm="post"):
        super().__init__()
        ways = {"post": self._post, "pre": self._pre}
        if norm not in ways:
            raise ValueError(f"norm should be one of {list(ways)}")
        self.way = norm
        self.attention, self.feed_forward = MultiHeadAttention(d_model, h), FeedForward(d_model, d_ff)
        self.norm1, self.norm2, self.drop = nn.LayerNorm(d_model), nn.LayerNorm(d_model), nn.Dropout(dropout)

    def _post(self, x, mask):
        x = self.norm1(self.drop(self.attention(x, mask=mask)[0]) + x)
        return self.norm2(self.drop(self.feed_forward(x)) + x)

    def _pre(self, x, mask):
        x = self.drop(self.attention(self.norm1(x), mask=mask)[0]) + x
        return self.drop(self.feed_forward(self.norm2(x))) + x

    def forward(self, x, mask=None):
        return (self._post if self.way == "post" else self._pre)(x, mask)


@right("identities around")
class EncoderBlock(nn.Module):
    def __init__(self, d_model, h, d_ff, dropout=0.1, norm="post"):
        super().__init__()
        if norm not in ("post", "pre"):
            raise ValueError(norm)
        self.attention, self.feed_forward = MultiHeadAttention(d_model, h), FeedForward(d_model, d_ff)
        self.norm1, self.norm2, self.dropout = nn.LayerNorm(d_model), nn.LayerNorm(d_model), nn.Dropout(dropout)
        self.post = norm == "post"

    def forward(self, x, mask=None):
        same = nn.Identity()
        for norm, sublayer in ((self.norm1, lambda y: self.attention(y, mask=mask)[0]), (self.norm2, self.feed_forward)):
            before, after = (same, norm) if self.post else (norm, same)
            x = after(x + self.dropout(sublayer(before(x))))
        return x


@right("sub-layers in a list, too")
class EncoderBlock(nn.Module):
    def __init__(self, d_model, h, d_ff, dropout=0.1, norm="post"):
        super().__init__()
        self.norm_first = {"post": False, "pre": True}.get(norm)
        if self.norm_first is None:
            raise ValueError(f"norm={norm!r}")
        self.norms = nn.ModuleList([nn.LayerNorm(d_model), nn.LayerNorm(d_model)])
        self.norm1, self.norm2 = self.norms
        self.attention, self.feed_forward = MultiHeadAttention(d_model=d_model, h=h), FeedForward(d_model, d_ff)
        self.dropout = nn.Dropout(p=dropout)

    def forward(self, x, mask=None):
        if self.norm_first:
            attended, _ = self.attention(self.norms[0](x), mask=mask)
            x = x + self.dropout(attended)
            return x + self.dropout(self.feed_forward(self.norms[1](x)))
        attended, _ = self.attention(x, mask=mask)
        x = self.norms[0](x + self.dropout(attended))
        return self.norms[1](x + self.dropout(self.feed_forward(x)))


@right("dropout by a mask of its own")
class EncoderBlock(nn.Module):
    def __init__(self, d_model, h, d_ff, dropout=0.1, norm="post"):
        super().__init__()
        if norm not in ("post", "pre"):
            raise ValueError("post or pre")
        self.attention, self.feed_forward = MultiHeadAttention(d_model, h), FeedForward(d_model, d_ff)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.p, self.kind = dropout, norm

    def drop(self, y):
        if not self.training or self.p == 0:
            return y
        if self.p == 1:
            return torch.zeros_like(y)
        return y * (torch.rand_like(y) >= self.p) / (1 - self.p)

    def forward(self, x, mask=None):
        if self.kind == "post":
            x = self.norm1(x + self.drop(self.attention(x, mask=mask)[0]))
            return self.norm2(x + self.drop(self.feed_forward(x)))
        x = x + self.drop(self.attention(self.norm1(x), mask=mask)[0])
        return x + self.drop(self.feed_forward(self.norm2(x)))


@right("the norms written out")
class EncoderBlock(nn.Module):
    def __init__(self, d_model, h, d_ff, dropout=0.1, norm="post"):
        super().__init__()
        if norm not in ("post", "pre"):
            raise ValueError(norm)
        self.attention, self.feed_forward = MultiHeadAttention(d_model, h), FeedForward(d_model, d_ff)
        self.norm1, self.norm2, self.dropout = nn.LayerNorm(d_model), nn.LayerNorm(d_model), nn.Dropout(dropout)
        self.norm = norm

    def normed(self, layer, x):
        centred = x - x.mean(dim=-1, keepdim=True)
        scaled = centred / (centred.square().mean(dim=-1, keepdim=True) + layer.eps).sqrt()
        return layer.weight * scaled + layer.bias

    def forward(self, x, mask=None):
        if self.norm == "post":
            x = self.normed(self.norm1, x + self.dropout(self.attention(x, mask=mask)[0]))
            return self.normed(self.norm2, x + self.dropout(self.feed_forward(x)))
        x = x + self.dropout(self.attention(self.normed(self.norm1, x), mask=mask)[0])
        return x + self.dropout(self.feed_forward(self.normed(self.norm2, x)))


# ---- gradient_by_depth ----------------------------------------------------------------------------------------------


@right("autograd.grad for all outputs")
def gradient_by_depth(blocks, x, G):
    outputs = []
    for block in blocks:
        x = block(x)
        outputs.append(x)
    loss = (x * G).sum()
    gradients = torch.autograd.grad(loss, outputs)
    return torch.stack([gradient.norm() for gradient in gradients])


_DEPTH = gradient_by_depth
RUN = "        x = block(x)\n        outputs.append(x)\n"

changed(
    _DEPTH,
    "inputs for outputs",
    "that is the gradient at each block's input; the exercise asks for its output",
    (RUN, "        x = x if x.requires_grad else x.detach().requires_grad_()\n        outputs.append(x)\n        x = block(x)\n"),
)
changed(
    _DEPTH,
    "gradients of the parameters",
    "those are the norms of the gradients of the blocks' parameters; wanted are the gradients at their outputs",
    (
        "    gradients = torch.autograd.grad(loss, outputs)\n",
        "    gradients = [torch.cat([g.flatten() for g in torch.autograd.grad(loss, [block.weight], retain_graph=True)])"
        " for block in blocks]\n",
    ),
)
changed(
    _DEPTH,
    "G left out",
    "the loss is the sum of the output; it should be the sum of output * G",
    ("(x * G).sum()", "x.sum()"),
)
changed(
    _DEPTH,
    "G squared",
    "the loss is the sum of (output * G) squared; it should be the sum of output * G",
    ("(x * G).sum()", "(x * G).square().sum()"),
)
changed(
    _DEPTH,
    "distance to G",
    "the loss is the squared distance from G; it should be the sum of output * G",
    ("(x * G).sum()", "(x - G).square().sum()"),
)
changed(
    _DEPTH,
    "mean for sum",
    "the loss is a mean; it should be the sum of output * G",
    ("(x * G).sum()", "(x * G).mean()"),
)
changed(
    _DEPTH,
    "last block first",
    "the norms come in the reverse order; entry 0 belongs to the first block",
    ("for gradient in gradients", "for gradient in gradients[::-1]"),
)
changed(
    _DEPTH,
    "squared norms",
    "those are squared norms: take the root",
    ("gradient.norm()", "gradient.square().sum()"),
)
changed(
    _DEPTH,
    "root mean squares",
    "those are root mean squares; the norm is the root of the sum of squares",
    ("gradient.norm()", "gradient.square().mean().sqrt()"),
)
changed(
    _DEPTH,
    "sums of absolute values",
    "those are sums of absolute values; the norm is the root of the sum of squares",
    ("gradient.norm()", "gradient.abs().sum()"),
)
changed(
    _DEPTH,
    "largest entries",
    "those are the largest entries; the norm is the root of the sum of squares",
    ("gradient.norm()", "gradient.abs().max()"),
)
changed(
    _DEPTH,
    "mean of the tokens' norms",
    "those are means of one norm per token; take one norm over the whole gradient",
    ("gradient.norm()", "gradient.norm(dim=-1).mean()"),
)
changed(
    _DEPTH,
    "norms of the outputs",
    "those are the norms of the outputs; wanted are those of the loss's gradients",
    ("for gradient in gradients", "for gradient in outputs"),
)
changed(
    _DEPTH,
    "relative to the last",
    "the norms are divided by the last one; return them as they are",
    (
        "    return torch.stack([gradient.norm() for gradient in gradients])\n",
        "    norms = torch.stack([gradient.norm() for gradient in gradients])\n    return norms / norms[-1]\n",
    ),
)
changed(
    _DEPTH,
    "the first block left out",
    "the first block is missing: there is one norm for every block",
    ("gradient in gradients]", "gradient in gradients[1:]]"),
)
changed(
    _DEPTH,
    "the input as well",
    "there is one norm too many, that of the input; there is one for every block",
    ("    outputs = []\n", "    x = x if x.requires_grad else x.detach().requires_grad_()\n    outputs = [x]\n"),
)
changed(
    _DEPTH,
    "blocks in reverse",
    "the blocks run in the reverse order",
    ("for block in blocks:", "for block in list(blocks)[::-1]:"),
)
changed(
    _DEPTH,
    "numbers in a list",
    "the result is a list; stack it into a tensor of shape (len(blocks),)",
    ("torch.stack([gradient.norm() for gradient in gradients])", "[gradient.norm() for gradient in gradients]"),
)
changed(
    _DEPTH,
    "cut between the blocks",
    "the chain is cut between the blocks, so the loss does not reach the earlier ones: no detach()",
    (RUN, "        x = block(x.detach())\n        outputs.append(x)\n"),
    (
        "torch.autograd.grad(loss, outputs)",
        "[torch.zeros_like(y) if g is None else g"
        " for y, g in zip(outputs, torch.autograd.grad(loss, outputs, allow_unused=True))]",
    ),
)
changed(
    _DEPTH,
    "through float32",
    "the norms are float32 whatever the input is; keep its dtype",
    ("gradient.norm()", "gradient.float().norm()"),
)


changed(
    _DEPTH,
    "blocks left in eval mode",
    "you put the blocks into eval mode and leave them there: a function that looks changes nothing",
    ("        x = block(x)\n", "        x = block.eval()(x)\n"),
)
changed(
    _DEPTH,
    "x asks for a gradient afterwards",
    "x.requires_grad_() marks the caller's own tensor: work on x.detach().requires_grad_(), or on the outputs alone",
    ("    outputs = []\n", "    outputs = []\n    x.requires_grad_()\n"),
)


@wrong("gradients left in .grad", "backward() leaves gradients in .grad; torch.autograd.grad leaves nothing behind")
def gradient_by_depth(blocks, x, G):
    outputs = []
    for block in blocks:
        x = block(x)
        x.retain_grad()
        outputs.append(x)
    (x * G).sum().backward()
    return torch.stack([y.grad.norm() for y in outputs])


@wrong("parameters frozen", "after your function the parameters no longer require gradients")
def gradient_by_depth(blocks, x, G):
    outputs, x = [], x.detach().requires_grad_()
    for block in blocks:
        for parameter in block.parameters():
            parameter.requires_grad_(False)
        x = block(x)
        outputs.append(x)
    return torch.stack([gradient.norm() for gradient in torch.autograd.grad((x * G).sum(), outputs)])


@right("backward, then tidied up")
def gradient_by_depth(blocks, x, G):
    outputs, y = [], x.detach()
    for block in blocks:
        y = block(y)
        y.retain_grad()
        outputs.append(y)
    (y * G).sum().backward()
    norms = torch.tensor([y.grad.norm() for y in outputs], dtype=x.dtype)
    for block in blocks:
        block.zero_grad(set_to_none=True)
    return norms


@right("one output at a time")
def gradient_by_depth(blocks, x, G):
    outputs = [x]
    for block in blocks:
        outputs.append(block(outputs[-1]))
    loss = torch.sum(outputs[-1] * G)
    grads = [torch.autograd.grad(loss, y, retain_graph=True)[0] for y in outputs[1:]]
    return torch.tensor([float(grad.square().sum().sqrt()) for grad in grads], dtype=x.dtype)


@right("backwards by hand, block by block")
def gradient_by_depth(blocks, x, G):
    states = [x.detach()]
    with torch.no_grad():
        for block in blocks:
            states.append(block(states[-1]))
    norms, gradient = [], G
    for block, state in list(zip(blocks, states))[::-1]:
        norms.append(gradient.norm())
        leaf = state.requires_grad_()
        (gradient,) = torch.autograd.grad(block(leaf), leaf, gradient)
    return torch.stack(norms[::-1])


@right("backward with inputs=")
def gradient_by_depth(blocks, x, G):
    outputs = []
    for block in blocks:
        x = block(x)
        x.retain_grad()
        outputs.append(x)
    (x * G).sum().backward(inputs=outputs)
    return torch.stack([torch.linalg.vector_norm(y.grad) for y in outputs])


@right("grad_outputs instead of a loss")
def gradient_by_depth(blocks, x, G):
    outputs = []
    for i in range(len(blocks)):
        x = blocks[i](x)
        outputs.append(x)
    return torch.stack([g.flatten().norm() for g in torch.autograd.grad(x, outputs, grad_outputs=G)]).detach()


@right("hooks on the outputs")
def gradient_by_depth(blocks, x, G):
    norms, y = [None] * len(blocks), x.detach().requires_grad_()
    leaf = y

    def note(i):
        return lambda gradient: norms.__setitem__(i, gradient.norm())

    for i, block in enumerate(blocks):
        y = block(y)
        y.register_hook(note(i))
    torch.autograd.grad((y * G).sum(), leaf)
    return torch.stack(norms)


@right("zeros added after every block")
def gradient_by_depth(blocks, x, G):
    added, y = [], x.detach()
    for block in blocks:
        y = block(y)
        zero = torch.zeros_like(y, requires_grad=True)
        y = y + zero
        added.append(zero)
    return torch.stack([g.pow(2).sum().sqrt() for g in torch.autograd.grad(torch.vdot(y.flatten(), G.flatten()), added)])
