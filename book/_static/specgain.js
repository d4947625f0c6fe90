/* What the theme leaves open: wide boxes that the keyboard can scroll, tables that can be sorted, and print with
   nothing folded. */
(function () {
  "use strict";

  const WIDE = "div.highlight pre, div.math, div.cell_output .output, .pst-scrollable-table-container";

  function makeReachable() {
    for (const box of document.querySelectorAll(WIDE))
      if (box.scrollWidth > box.clientWidth && !box.hasAttribute("tabindex")) box.tabIndex = 0;
  }

  /* Put a button into every head of a sortable table; a second press turns the order. */
  function makeSortable(table) {
    const body = table.tBodies[0];
    table.querySelectorAll("thead th").forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const turned = head.getAttribute("aria-sort") === "ascending";
        table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", turned ? "descending" : "ascending");
        const text = (row) => row.cells[column].textContent;
        const rows = [...body.rows].sort((a, b) => text(a).localeCompare(text(b), "en", { numeric: true }));
        body.append(...(turned ? rows.reverse() : rows));
      });
    });
  }

  function unfold() {
    document.querySelectorAll("details:not([open])").forEach((part) => part.setAttribute("open", ""));
    document.querySelectorAll(".toggle-hidden").forEach((part) => part.classList.remove("toggle-hidden"));
  }

  window.addEventListener("DOMContentLoaded", () => document.querySelectorAll("table.sg-sortable").forEach(makeSortable));
  window.addEventListener("load", () => setTimeout(makeReachable, 300));
  window.addEventListener("resize", makeReachable);
  window.addEventListener("beforeprint", unfold);
})();
