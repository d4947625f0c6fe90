/* What the theme leaves open: formulas that fit and keep their comma, code that breaks its lines, wide boxes that the
   keyboard can scroll and that show that they go on, tables that can be sorted, and print in dark on white with nothing
   folded. */
(function () {
  "use strict";

  const WIDE = "div.highlight pre, div.math, div.cell_output .output, .pst-scrollable-table-container, .sg-scroll, .sg-wide";

  /* A browser may break a line between a formula or a name and the comma behind it, or the bracket before it. */
  function keepTogether() {
    for (const formula of document.querySelectorAll("span.math, .bd-article :not(pre, td, th) > code")) {
      if (formula.matches("code") && !/^\S{1,28}$/.test(formula.textContent)) continue;
      const before = /[(\[“‘]$/.exec(textOf(formula.previousSibling));
      const behind = /^[.,;:!?)\]”’]+/.exec(textOf(formula.nextSibling));
      if (!before && !behind) continue;
      const whole = document.createElement("span");
      whole.className = "sg-together";
      formula.replaceWith(whole);
      whole.append(before ? before[0] : "", formula, behind ? behind[0] : "");
      if (before) whole.previousSibling.data = whole.previousSibling.data.slice(0, -1);
      if (behind) whole.nextSibling.data = whole.nextSibling.data.slice(behind[0].length);
    }
  }

  /* ... nor between a number and its unit, around the equals sign of a short equation, or in n-gram and EAGLE-2. */
  const UNIT = /(\d) (?=(?:%|[GM]i?B|µs|ms|s|W)(?!\w))/g;
  const EQUALS = /(?<=(?:^|[\s(,])[\p{L}\[\]]{1,4}) = (?=[\d−])/gu;
  const HYPHEN = /(?<=(?<![\p{L}\d])[\p{L}\d])-(?=[\p{L}\d])|(?<=[\p{L}\d])-(?=[\p{L}\d]{1,2}(?![\p{L}\d]))/gu;
  function joinUnits() {
    const texts = document.createTreeWalker(document.querySelector(".bd-article") || document.body, NodeFilter.SHOW_TEXT);
    for (let text = texts.nextNode(); text; text = texts.nextNode()) {
      const joined = text.data.replace(UNIT, "$1\u00a0").replace(EQUALS, "\u00a0=\u00a0").replace(HYPHEN, "-\u2060");
      if (joined !== text.data && !text.parentElement.closest("pre, code, script, style, svg, .math")) text.data = joined;
    }
  }

  /* ... nor at the dashes of an option or a name, such as --draft-max or conditional[i-1]. */
  function joinNames() {
    for (const word of document.querySelectorAll(".bd-article code .pre"))
      if (/^(?=\S*-)\S{1,28}$/.test(word.textContent)) word.classList.add("sg-together");
  }

  /* Let long names, those in a table or a source too, break behind their joints, such as in vllm:spec_decode_num_drafts. */
  function markJoints() {
    const cells = ".bd-article :is(table code:not(:has(.pre)), code .pre, table.sg-cards td, div.cell_output em), .bd-sidebar-secondary code .pre";
    for (const cell of document.querySelectorAll(cells)) {
      if (cell.matches(".pre") && !cell.closest("table, .bd-sidebar-secondary") && cell.textContent.length < 25) continue;
      const joint = cell.closest("code") ? /(?<=[^\W_][_:\/.])(?=\w)/ : /(?<=[_\/])(?=\w)/;
      for (const text of [...cell.childNodes].filter((part) => part.nodeType === Node.TEXT_NODE && joint.test(part.data)))
        text.replaceWith(...text.data.split(joint).flatMap((part, i) => (i ? [document.createElement("wbr"), part] : [part])));
    }
  }

  /* A table that becomes cards on a phone needs its heads before its entries; those of PageTable have them already. */
  function labelCards() {
    for (const table of document.querySelectorAll(".bd-article table.sg-cards:not(.sg-table)"))
      for (const row of table.tBodies[0].rows)
        [...row.cells].forEach((cell, column) => (cell.dataset.label = table.tHead.rows[0].cells[column].textContent.trim()));
  }

  /* Long lines of code break and go on below their own indentation, those of columns below the last one; the newlines
     stay for the copy button. */
  function hangCode() {
    const most = innerWidth > 600 ? 60 : 18;
    for (const code of document.querySelectorAll('.bd-article [class*="highlight-"] pre')) {
      if (code.closest(".cell_output")) continue;
      const lines = code.innerHTML.replace(/\n$/, "").split("\n").map((html) => {
        const line = document.createElement("span");
        line.className = "sg-line";
        line.innerHTML = html.replace(/(?<=\w)\/(?=\w)|<span class="o">\/<\/span>(?=<|\w)/g, "$&<wbr>") + "\n"; // paths break
        const columns = /^.*\S {3,}(?=\S)/.exec(line.textContent);
        const before = columns || /^ */.exec(line.textContent) + "  ";
        const over = columns ? columns[0].length - most : 0; // on a phone the columns move together, if the first one is short
        if (over > 0) line.innerHTML = line.innerHTML.replace(/ {3,}(?!.* {3})/, (gap) =>
          columns[0].length - gap.length > most + 4 ? gap : " ".repeat(Math.max(2, gap.length - over)));
        line.style.setProperty("--sg-hang", Math.min(String(before).length, most));
        return line;
      });
      code.replaceChildren(...lines);
    }
  }

  function textOf(node) {
    return node && node.nodeType === Node.TEXT_NODE ? node.data : "";
  }

  /* Shrink a formula that is wider than its box, down to seven tenths; what is still wider scrolls. */
  function fitFormulas() {
    const formulas = [...document.querySelectorAll(".bd-article mjx-container")];
    formulas.forEach((formula) => formula.style.removeProperty("--sg-fit"));
    const widths = formulas.map((formula) => {
      const box = formula.getAttribute("display") ? formula : formula.parentElement;
      return [box.clientWidth, formula.querySelector("mjx-math").getBoundingClientRect().width];
    });
    widths.forEach(([room, width], i) => {
      if (room && width > room + 0.6) formulas[i].style.setProperty("--sg-fit", Math.max(0.7, (room - 1) / width));
      if (!formulas[i].getAttribute("display")) formulas[i].parentElement.classList.toggle("sg-wide", room && 0.7 * width > room + 2);
    });
  }

  function makeReachable() {
    for (const box of document.querySelectorAll(WIDE)) {
      const wide = box.scrollWidth > box.clientWidth + 1;
      if (wide && !box.hasAttribute("tabindex")) box.tabIndex = 0;
      box.classList.toggle("sg-more", wide && box.scrollLeft + box.clientWidth < box.scrollWidth - 2);
      box.onscroll = () => box.classList.toggle("sg-more", box.scrollLeft + box.clientWidth < box.scrollWidth - 2);
    }
  }

  function fitAll() {
    fitFormulas();
    makeReachable();
  }

  async function whenLoaded() {
    if (window.MathJax && MathJax.startup) await MathJax.startup.promise;
    fitAll();
    setTimeout(fitAll, 300);
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

  /* Paper is white and cannot be unfolded. */
  let theme;
  function beforePrint() {
    document.querySelectorAll("details:not([open])").forEach((part) => part.setAttribute("open", ""));
    document.querySelectorAll(".toggle-hidden").forEach((part) => part.classList.remove("toggle-hidden"));
    theme = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = "light";
  }

  function afterPrint() {
    document.documentElement.dataset.theme = theme;
  }

  /* The search puts a page that holds the word above a name of the library that holds it in part ("KL" in "workloads"). */
  window.Scorer = { objNameMatch: 16, objPartialMatch: 3, objPrio: { 0: 15, 1: 0, 2: -5 }, objPrioDefault: 0, title: 15, partialTitle: 7, term: 5, partialTerm: 2 };

  window.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll("table.sg-sortable").forEach(makeSortable);
    keepTogether();
    joinUnits();
    joinNames();
    markJoints();
    labelCards();
    hangCode();
  });
  window.addEventListener("load", whenLoaded);
  window.addEventListener("resize", fitAll);
  document.addEventListener("toggle", fitAll, true); // a box that was folded had no width
  document.addEventListener("click", (event) => event.target.closest(".toggle-button, .toggle") && setTimeout(fitAll, 50));
  window.addEventListener("beforeprint", beforePrint);
  window.addEventListener("afterprint", afterPrint);
})();
