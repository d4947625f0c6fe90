/* What the theme and jupyterquiz leave open: quizzes for keyboard and screen reader, and print with nothing folded. */
(function () {
  "use strict";

  let groups = 0;

  /* Names the parts of one question, so that a screen reader says the question, the field and the feedback. */
  function describe(quiz) {
    const question = quiz.querySelector(".MultipleChoiceQn, .ManyChoiceQn, .NumericQn, .StringQn");
    const answers = quiz.querySelector(".Answer");
    const feedback = quiz.querySelector(".Feedback");
    if (!question || !answers || !feedback || quiz.dataset.described) return;
    quiz.dataset.described = "yes";
    question.id = question.id || "question-" + ++groups;
    quiz.setAttribute("role", "group");
    quiz.setAttribute("aria-labelledby", question.id);
    feedback.setAttribute("role", "status");
    const field = answers.querySelector("input.Input-text");
    const label = answers.querySelector("label.InpLabel");
    if (field && label) {
      label.htmlFor = field.id;
      label.textContent = "Your answer, then Enter:";
    }
  }

  function describeAll(root) {
    if (root.matches && root.matches(".Quiz")) describe(root);
    root.querySelectorAll && root.querySelectorAll(".Quiz").forEach(describe);
  }

  /* Scrolling regions can be reached by keyboard. */
  function reachable() {
    for (const box of document.querySelectorAll(".bd-article div.highlight pre, .bd-article mjx-container[display], .bd-article div.math, .pst-scrollable-table-container"))
      if (box.scrollWidth > box.clientWidth && !box.hasAttribute("tabindex")) box.tabIndex = 0;
  }

  function unfold() {
    document.querySelectorAll("details:not([open])").forEach((part) => part.setAttribute("open", ""));
    document.querySelectorAll(".toggle-hidden").forEach((part) => part.classList.remove("toggle-hidden"));
  }

  document.addEventListener("DOMContentLoaded", function () {
    describeAll(document);
    new MutationObserver((changes) => changes.forEach((change) => change.addedNodes.forEach(describeAll)))
      .observe(document.body, { childList: true, subtree: true });
  });
  window.addEventListener("load", () => setTimeout(reachable, 300));
  window.addEventListener("beforeprint", unfold);
})();
