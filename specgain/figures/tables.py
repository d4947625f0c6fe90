"""A table for a page: it can be sorted, its rows can become cards on a phone, and it is plain text elsewhere."""

import html
import re


class PageTable:
    """Rows of text under heads, shown by `_repr_html_`; text between backquotes is shown as code.

    `sortable` puts a button into every head.  `cards` turns each row into a card on a narrow screen: for rows of
    sentences, not of numbers.

    >>> PageTable(["device", "date"], [["EPYC", "2026-11-29"]])
    device  date
    EPYC    2026-11-29
    """

    def __init__(self, heads, rows, sortable=False, cards=False):
        self.heads, self.rows = list(heads), [list(map(str, row)) for row in rows]
        self.classes = "sg-table" + " sg-sortable" * sortable + " sg-cards" * cards
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
        table = f'<table class="{self.classes}"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
        return f'<div class="pst-scrollable-table-container">{table}</div>'


def _markup(text):
    text = re.sub(r"(?<![^\s(])-(?=\.?\d)", "−", html.escape(text, quote=False))  # the sign of a number
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text).replace("\n", "<br>")
    one_word = r"\(?\b\d{4}-\d\d-\d\d\b|(?<![\w-])--[a-z][\w-]*"  # a date, an option
    return re.sub(one_word, r'<span style="white-space: nowrap">\g<0></span>', text)
