"""A table for a page: rows become cards on a phone, columns can be sorted, plain text elsewhere."""

import html
import re


class PageTable:
    """Rows of text under heads, shown by `_repr_html_`; `sortable` puts a button into every head of a page.

    Text between backquotes is shown as code.

    >>> PageTable(["device", "date"], [["EPYC", "2026-11-29"]])
    device  date
    EPYC    2026-11-29
    """

    def __init__(self, heads, rows, sortable=False):
        self.heads, self.rows, self.sortable = list(heads), [list(map(str, row)) for row in rows], sortable
        for row in self.rows:
            if len(row) != len(self.heads):
                raise ValueError(f"a row has {len(row)} entries for {len(self.heads)} heads: {row}")

    def __repr__(self):
        lines = [self.heads, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.heads))]
        return "\n".join("  ".join(t.ljust(w) for t, w in zip(line, widths, strict=True)).rstrip() for line in lines)

    def _repr_html_(self):
        heads = "".join(f'<th scope="col">{_markup(head)}</th>' for head in self.heads)
        rows = "".join(
            "<tr>"
            + "".join(
                f'<td data-label="{html.escape(head)}">{_markup(text)}</td>'
                for head, text in zip(self.heads, row, strict=True)
            )
            + "</tr>"
            for row in self.rows
        )
        name = "sg-table sg-sortable" if self.sortable else "sg-table"
        return f'<table class="{name}"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'


def _markup(text):
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False)).replace("\n", "<br>")
