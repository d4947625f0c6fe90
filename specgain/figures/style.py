"""The one visual language: colours by role, SVG in the page's own colours, small parts that every figure uses."""

import functools
import hashlib
import html
import io
import re

import matplotlib
from matplotlib.figure import Figure

WIDTH = 4.6  # inches; the page scales it to the column
SMALL = 8.4  # the least size of a text: 9 px where the column is as narrow as a phone
INK, PAPER = "#14202a", "#fefeff"
DRAFT, VERIFY, OTHER, GAIN, LOSS = "#a84b00", "#1b5e9b", "#5b6673", "#00705a", "#b3311d"
SERIES = (VERIFY, DRAFT, GAIN, LOSS, OTHER)
# what each colour becomes inside a page: the page's variable where it has one
THEME = {
    INK: "currentColor",
    PAPER: "var(--pst-color-background, var(--jp-layout-color0, #fff))",
    DRAFT: "var(--sg-draft, #a84b00)",
    VERIFY: "var(--sg-verify, #1b5e9b)",
    OTHER: "var(--sg-other, #5b6673)",
    GAIN: "var(--sg-accepted, #00705a)",
    LOSS: "var(--sg-rejected, #b3311d)",
}
PREDICTION = {"linestyle": (0, (4, 2.4)), "marker": "o", "markersize": 5, "markerfacecolor": PAPER, "linewidth": 1.4}
MEASUREMENT = {"linestyle": "-", "marker": "o", "markersize": 4.2, "linewidth": 1.2, "capsize": 2.2}
ARROW = {"arrowstyle": "-|>", "lw": 2, "shrinkA": 0, "shrinkB": 0}
STYLE = {
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.facecolor": "none",
    "axes.axisbelow": True,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "grid.color": INK,
    "grid.alpha": 0.14,
    "grid.linewidth": 0.7,
    "hatch.linewidth": 0.8,
    "figure.facecolor": "none",
    "svg.fonttype": "none",
    "svg.hashsalt": "specgain",
}
CSS = """
.sg-figure, .sg-rounds { color: inherit; background: none; font-family: var(--sg-sans, system-ui, sans-serif); }
.sg-figure svg { display: block; width: 100%; max-width: 35rem; height: auto; overflow: visible; }
.sg-figure svg text { font-family: inherit !important; }
.sg-figure p { margin: .3rem 0 0; text-align: left; font-size: .85rem; line-height: 1.4; color: var(--sg-quiet, inherit); }
.sg-rounds { font-size: .9rem; line-height: 1.5; }
.sg-rounds p { margin: .7rem 0 .25rem; }
.sg-rounds ol { display: flex; flex-wrap: wrap; gap: .3rem; list-style: none; margin: 0; padding: 0; }
.sg-rounds li { margin: 0; padding: .1rem .45rem; border: 1px solid; border-radius: .35rem; white-space: pre;
  font-family: var(--sg-mono, monospace); font-size: .85rem; }
.sg-rounds .accepted { color: var(--sg-accepted, #00705a); background: var(--sg-accepted-soft, transparent); }
.sg-rounds .rejected { border-style: dashed; color: var(--sg-rejected, #b3311d); text-decoration: line-through; }
.sg-rounds .unread { border-style: dotted; color: var(--sg-quiet, #5b6673); }
.sg-rounds .own { border-width: 2px; color: var(--sg-verify, #1b5e9b); font-weight: 650; }
html[data-theme] .bd-article div.cell_output .text_html:has(div:is(.sg-figure, .sg-rounds)):not(:has(table.dataframe)) {
  background: none; color: inherit; padding: 0; }
body[data-jp-theme-light="false"] :is(.sg-figure, .sg-rounds), html[theme="dark"] :is(.sg-figure, .sg-rounds) {
  --sg-draft: #f3a95f; --sg-verify: #86bdf0; --sg-other: #a4b0bd; --sg-accepted: #5fd0b4; --sg-rejected: #ff9b85; }
"""


# ------------------------------------------------------------------------------------------ the drawing itself


class Drawing(Figure):
    """A matplotlib Figure one column wide, shown as inline SVG; `alt` describes it, `note` stands below it."""

    def __init__(self, height, note=""):
        super().__init__(figsize=(WIDTH, height), layout="constrained")
        self.alt, self.note = "", note[:1].upper() + note[1:]

    def svg(self):
        """Return the figure as one `<svg>` element: themed colours, text as text, no id that another figure has."""
        buffer = io.StringIO()
        with matplotlib.rc_context(STYLE):
            self.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        return _for_a_page(buffer.getvalue(), self.alt)

    def _repr_html_(self):
        note = f"<p>{html.escape(self.note)}</p>" if self.note else ""
        return f'<div class="sg-figure"><style>{CSS}</style>{self.svg()}{note}</div>'


def _for_a_page(svg, alt):
    """Return matplotlib's SVG fit for HTML: no prolog, no page-wide style, themed colours, private ids, alt text."""
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg[svg.index("<svg") :], flags=re.S)
    for colour, themed in THEME.items():
        svg = svg.replace(colour, themed)
    mark = hashlib.sha256(svg.encode()).hexdigest()[:8]
    used = set(re.findall(r'(?:url\(|href=")#([\w.-]+)', svg))
    svg = re.sub(r' id="([\w.-]+)"', lambda m: f' id="{mark}-{m[1]}"' if m[1] in used else "", svg)
    svg = re.sub(r'(url\(|href=")#', rf"\1#{mark}-", svg)
    head, body = svg.split(">", 1)
    box = re.search(r'viewBox="[^"]+"', head)[0]
    style = 'style="stroke-linejoin: round; stroke-linecap: butt"'
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return f'<svg {names} {box} {style} role="img" aria-label="{html.escape(alt)}">{body.strip()}'


def styled(function):
    """Return `function` so that it draws in the course's style and leaves matplotlib's own settings alone."""

    @functools.wraps(function)
    def inside(*args, **kwargs):
        with matplotlib.rc_context(STYLE):
            return function(*args, **kwargs)

    return inside

# ------------------------------------------------------------------------------------------ small parts


def label_axes(ax, x, y, ticks, title=""):
    """Label both axes with their units, lay a light grid, and thin out the ticks."""
    ax.set(xlabel=x, ylabel=y, title=title)
    ax.grid(axis="y")
    if ticks is not None:
        ax.set_xticks(ticks if len(ticks) < 14 else ticks[:: len(ticks) // 8])
    ax.locator_params(axis="y", nbins=6)


def beside(ax, x, y, text, colour):
    """Write a text just right of a point."""
    ax.annotate(text, (x, y), (4, 0), textcoords="offset points", va="center", color=colour, annotation_clip=False)


def label_ends(ax, ends):
    """Write each line's name behind its last point, pushed apart where two would touch."""
    low, high = ax.get_ylim()
    gap, least = (high - low) * 0.075, low
    for x, y, name, colour in sorted(ends, key=lambda end: end[1]):
        least = max(y, least)
        ax.annotate(
            name, (x, least), (7, 0), textcoords="offset points", va="center", color=colour, annotation_clip=False
        )
        least += gap


def signed(value, digits=1):
    """Return a number with its sign, the minus a real one."""
    return f"{value:+.{digits}f}".replace("-", "−")


def some(values, name):
    """Return `values`; ValueError if there is none."""
    if len(values) == 0:
        raise ValueError(f"{name} is empty; give at least one")
    return values


def checked_gammas(gammas, least=0):
    """Return `gammas` as a list; ValueError unless they are rising whole numbers from `least` on."""
    gammas = list(some(list(gammas), "gammas"))
    if any(isinstance(g, bool) or not isinstance(g, int) or g < least for g in gammas) or sorted(gammas) != gammas:
        raise ValueError(f"gammas = {gammas} must be rising whole numbers of tokens, {least} or more")
    return gammas


def consecutive(gammas):
    """Return `gammas` as a list; ValueError unless each is one more than the one before."""
    gammas = checked_gammas(gammas, least=1)
    if gammas != list(range(gammas[0], gammas[0] + len(gammas))):
        raise ValueError(f"gammas = {gammas} must be consecutive, such as 1, 2, 3: each bar is one more candidate")
    return gammas
