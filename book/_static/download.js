// A browser shows a notebook that lies on a disk instead of saving it. A script may be loaded from
// there, though: beside each notebook lies one that carries it (tools/how_made.py).
(() => {
  window.saveNotebook = async (name, packed) => {
    const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
    const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await new Response(unpacked).blob());
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  };

  document.addEventListener("click", (event) => {
    const link = event.target.closest?.('a.download[href$=".ipynb"]');
    if (!link || location.protocol !== "file:") return;
    event.preventDefault();
    const script = document.createElement("script");
    script.src = `${link.href}.js`;
    script.onload = () => script.remove();
    document.head.append(script);
  });
})();
