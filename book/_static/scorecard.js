// Filters the scorecard. The page is complete without it: the form is hidden until this runs.
(() => {
  const form = document.querySelector(".scorecard-filter");
  const status = form.querySelector("[role=status]");
  // The words are read now, because MathJax will put its own in place of the formulas.
  const claims = [...document.querySelectorAll("table.scorecard > tbody")].map((body) => ({
    body,
    content: body.textContent.toLowerCase(),
  }));

  function filter() {
    const { paper, verdict, words } = form.elements;
    const wanted = words.value.toLowerCase().split(/\s+/);
    let shown = 0;
    for (const { body, content } of claims) {
      const fits =
        (!paper.value || body.dataset.paper === paper.value) &&
        (!verdict.value || body.dataset.verdict === verdict.value) &&
        wanted.every((word) => content.includes(word));
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
