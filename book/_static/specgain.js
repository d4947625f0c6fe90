/* What the theme leaves open: wide boxes that the keyboard can scroll, and print with nothing folded. */
(function () {
  "use strict";

  const WIDE = "div.highlight pre, div.math, div.cell_output .output, .pst-scrollable-table-container";

  function makeReachable() {
    for (const box of document.querySelectorAll(WIDE))
      if (box.scrollWidth > box.clientWidth && !box.hasAttribute("tabindex")) box.tabIndex = 0;
  }

  function unfold() {
    document.querySelectorAll("details:not([open])").forEach((part) => part.setAttribute("open", ""));
    document.querySelectorAll(".toggle-hidden").forEach((part) => part.classList.remove("toggle-hidden"));
  }

  window.addEventListener("load", () => setTimeout(makeReachable, 300));
  window.addEventListener("resize", makeReachable);
  window.addEventListener("beforeprint", unfold);
})();
