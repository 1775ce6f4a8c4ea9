// Filters the scorecard. The page is complete without it: the form is hidden until this runs.
(() => {
  const form = document.querySelector(".scorecard-filter");
  const status = form.querySelector("[role=status]");

  // Read now, because MathJax will put its own text in place of the formulas.
  const claims = [...document.querySelectorAll("table.scorecard > tbody")].map((body) => ({
    body,
    content: asWords(body.textContent),
  }));

  function filter() {
    const { paper, kind, verdict, words } = form.elements;
    const wanted = asWords(words.value);
    let shown = 0;
    for (const { body, content } of claims) {
      const fits =
        (!paper.value || body.dataset.paper === paper.value) &&
        (!kind.value || body.dataset.kind === kind.value) &&
        (!verdict.value || body.dataset.verdict === verdict.value) &&
        (wanted === " " || content.includes(wanted));
      body.hidden = !fits;
      shown += fits;
    }
    status.textContent = `${shown} of ${claims.length} claims`;
  }

  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(filter)); // after the fields are empty
  form.hidden = false;
  filter(); // a browser may have kept the fields from an earlier visit
})();
