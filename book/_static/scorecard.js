// Filters and unfolds the scorecard. It is complete without this: the form is hidden until it runs.
(() => {
  const FEW = 40; // so many claims are unfolded at once
  const form = document.querySelector(".scorecard-filter");
  const status = form.querySelector("[role=status]");
  const inForm = (node) => !node.closest(".own"); // what the book adds is no claim of the papers
  const groups = [...document.querySelectorAll("details.claims")].filter(inForm);

  // Read now, because MathJax will put its own text in place of the formulas.
  const bodies = [...document.querySelectorAll("table.scorecard > tbody")].filter(inForm);
  const claims = bodies.map((body) => ({ body, content: asWords(body.textContent) }));

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
    for (const group of groups) {
      group.hidden = !group.querySelector("tbody:not([hidden])");
      group.open = shown <= FEW && !group.hidden;
    }
    status.textContent = `${shown} of ${claims.length} claims`;
  }

  function reveal() {
    const claim = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!claim?.matches("table.scorecard > tbody")) return;
    for (let group = claim.closest("details.claims"); group; ) {
      group.open = true;
      group = group.parentElement.closest("details.claims");
    }
    claim.scrollIntoView({ block: "center" });
  }

  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(filter)); // after the fields are empty
  form.hidden = false;
  filter(); // a browser may have kept the fields from an earlier visit
  window.addEventListener("load", reveal);
  window.addEventListener("hashchange", reveal);
})();
