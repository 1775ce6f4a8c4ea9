// docutils calls a bibliography a list, and its entries what no list may hold: a screen reader
// would announce a list without entries.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll(".citation-list").forEach(e => e.removeAttribute("role"));
});
