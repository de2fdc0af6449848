# Set-up, the same in every chapter: run it first. It needs numpy, torch and matplotlib, and downloads nothing.
import base64
import io
import logging
import math
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from IPython.display import display
from torch import nn

logging.getLogger("matplotlib").setLevel(logging.ERROR)      # no news about its font cache
import matplotlib.pyplot as plt  # noqa: E402

rng = np.random.default_rng(0)
torch.manual_seed(0)
torch.set_num_threads(1)             # our matrices are small: a second thread would only wait for the first
torch.set_flush_denormal(True)       # numbers below 1e-38 become 0; many processors are slow with them
with warnings.catch_warnings():      # a GPU that cannot be used is no error: the CPU will do
    warnings.simplefilter("ignore")
    device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"

GREY, COLOURS, LINES = "#767676", ["#1f77b4", "#d55e00", "#009e73", "#b0609e"], ["-", "--", ":", "-."]
plt.rcParams.update({f"{part}color": GREY for part in ("text.", "axes.label", "axes.edge", "xtick.", "ytick.")} | {
    "figure.figsize": (7, 3), "figure.constrained_layout.use": True, "font.size": 11, "axes.titlesize": 11,
    "axes.spines.top": False, "axes.spines.right": False, "legend.fontsize": 9, "legend.frameon": False,
    "lines.linewidth": 2, "axes.prop_cycle": plt.cycler(color=COLOURS, linestyle=LINES)})

def expect(condition, message):
    """Pass if the condition holds; otherwise stop and say in words what is wrong."""
    if not condition:
        raise AssertionError(message)

def show(fig, alt):
    """Display a figure once, on a light or a dark page; alt says in words what is to be seen."""
    picture = io.BytesIO()
    fig.savefig(picture, format="png", dpi=115, transparent=True, pil_kwargs={"optimize": True})
    plt.close(fig)
    data = {"image/png": base64.b64encode(picture.getvalue()).decode(), "text/plain": alt}
    display(data, raw=True, metadata={"alt": alt, "image/png": {"alt": alt, "width": round(96 * fig.get_figwidth())}})

def distributions(ax, groups, bins):
    """Outline a histogram per group, {name: values}; values outside go to the end bins; ▲ median, × mean."""
    for (name, values), colour, line in zip(groups.items(), COLOURS, LINES):
        values = np.asarray(values)
        ax.hist(values.clip(bins[0], bins[-1]), bins=bins, histtype="step", linewidth=2, color=colour, linestyle=line, label=name)
        for x, marker in ((np.median(values), "^"), (np.mean(values), "x")):
            ax.plot(x, 0, marker, color=colour, markersize=9, mew=2, clip_on=False, transform=ax.get_xaxis_transform())

def heatmap(ax, weights, title):
    """Draw weights (n, m), queries down and keys across, and write each number into its cell."""
    n, m = ax.imshow(weights, cmap="cividis", vmin=0, vmax=1).get_array().shape
    ax.set(title=title, xlabel="key (token)", ylabel="query (token)")
    ax.set(xticks=range(m), xticklabels=range(1, m + 1), yticks=range(n), yticklabels=range(1, n + 1))
    for (i, j), weight in np.ndenumerate(np.asarray(weights)):
        ax.text(j, i, f"{weight:.3f}", ha="center", va="center", color="black" if weight > 0.5 else "white")
