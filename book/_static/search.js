// The search page: ranks the sections, claims and entries of the API in SEARCH_INDEX for the words
// of the address or the field. elasticlunr finds and weighs; what a reader names in full, such as
// "Theorem 8", leads to what bears that name.
(() => {
  const SHOWN = 50;
  const EXCERPT = 220; // characters
  const TITLE = 8; // how much more a word in a title says than one in the text
  const ASKED = 250; // what a place gains that a reader's own words lead to
  const NEAR = 0.6; // how nearly a phrase has to say what is asked
  // What titles abbreviate and readers may write in full.
  const WHOLE = { ep: "expectation propagation", gp: "gaussian process" };
  // What newcomers type that says nothing of the place.
  const STOP = new Set("a an and can do does don for how i in is it my of on our s t the their this to use using what when with your".split(" "));
  // "Table 3, line 7" is looked for at its table.
  const LINE = /(?<=\d),? (?:lines?|rows?|columns?) \d+\s*$/i;
  const KINDS = { section: "section", claim: "claim", api: "package" };

  const field = document.querySelector(".bd-search-container form.bd-search input");
  const filter = document.querySelector(".search-filter");
  const status = document.getElementById("search-status");
  const list = document.getElementById("search-results");

  // GPClassifier.fit is found as "gpclassifier", "classifier" and "fit".
  const apart = (name) =>
    name.replace(/(\p{Ll})(\p{Lu})/gu, "$1 $2").replace(/(\p{Lu})(\p{Lu}\p{Ll})/gu, "$1 $2");
  const telling = (words) => words.filter((word) => !STOP.has(word));
  const whole = (words) => words.replace(/\b(ep|gp)\b/g, (short) => `${short} ${WHOLE[short]}`);
  // With a space before each, as asWords has them; all of them where none tells anything.
  const told = (words) => ["", ...telling(words.split(" ").slice(1))].join(" ") || words;
  const stems = (words) => words.split(" ").map((word) => word && elasticlunr.stemmer(word)).join(" ");
  const stemmed = (words) => new Set(stems(words).split(" ").slice(1));
  const prose = (text) => text.replace(/\$[^$]*\$/g, " ");

  elasticlunr.tokenizer.setSeperator(/ +/);
  const index = elasticlunr(function () {
    this.setRef("id");
    this.addField("title");
    this.addField("text");
    this.saveDocument(false);
  });
  const known = new Map(); // how many entries have a word
  const asking = new Map(); // how many places are asked for by a word
  const places = SEARCH_INDEX.filter((entry) => entry.asked).length;
  const entries = SEARCH_INDEX.map((entry, id) => {
    const title = whole(asWords(entry.title));
    const long = entry.kind === "api" ? title + asWords(apart(entry.title)) : title;
    const text = asWords(prose(entry.text));
    index.addDoc({ id, title: long, text });
    const asks = (entry.asked ?? []).map((phrase) => told(asWords(phrase)));
    for (const word of new Set(`${long}${text}${asWords(entry.where)}${asks.join("")}`.split(" "))) {
      known.set(word, (known.get(word) ?? 0) + 1);
    }
    // "W&N, Section 5, Table 2" bears the name "Table 2"; "Theorem 8: which way?" what stands first.
    const name = entry.kind === "api" ? apart(entry.title.split(".").pop()) : entry.title.split(/:| \(/)[0];
    const names = stems(told(whole(asWords(entry.kind === "claim" ? entry.title.split(",").pop() : name))));
    const asked = asks.map(stemmed);
    const askedBy = new Set(asked.flatMap((phrase) => [...phrase])); // the words of all phrases
    for (const word of askedBy) asking.set(word, (asking.get(word) ?? 0) + 1);
    return { ...entry, id, names, asked, askedBy, words: `${long}${asWords(entry.where)}${text}` };
  });

  // Insertions, deletions, replacements and swaps of neighbours from one word to another.
  function distance(a, b) {
    const rows = [[...Array(b.length + 1).keys()]];
    for (let i = 1; i <= a.length; i++) {
      rows.push([i]);
      for (let j = 1; j <= b.length; j++) {
        rows[i][j] = Math.min(
          rows[i - 1][j] + 1,
          rows[i][j - 1] + 1,
          rows[i - 1][j - 1] + (a[i - 1] !== b[j - 1]),
          i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1] ? rows[i - 2][j - 2] + 1 : Infinity,
        );
      }
    }
    return rows[a.length][b.length];
  }

  // The nearest word of the book to one that begins none; of those as near, the commonest.
  function corrected(word) {
    const all = [...known.keys()];
    if (word.length < 4 || all.some((other) => other.startsWith(word))) return word;
    const near = all
      .filter((other) => Math.abs(other.length - word.length) <= 2)
      .map((other) => [distance(word, other), -known.get(other), other])
      .filter(([steps]) => steps <= (word.length < 7 ? 1 : 2))
      .sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    return near.length ? near[0][2] : word;
  }

  // How nearly a place's phrases say what is asked, from 0 to 1: words in common with one of them, of
  // all of both; of several words also those that stand in any of them, rare ones counting more.
  function nearness(entry, words, weight) {
    if (entry.asked.length === 0) return 0;
    const shares = entry.asked.map((phrase) => {
      const common = [...phrase].filter((word) => words.has(word)).length;
      return common / (phrase.size + words.size - common);
    });
    const near = Math.max(...shares);
    if (near >= NEAR) return near;
    if (words.size === 1) return 0; // a word of a longer phrase says little
    const covered = rarity([...words].filter((word) => entry.askedBy.has(word))) / weight;
    return (covered ** 2 + near) / 2;
  }

  // What words say together: the more, the fewer places are asked for by them.
  function rarity(words) {
    return words.reduce((sum, word) => sum + Math.log(1 + places / (asking.get(word) ?? 0.5)), 0);
  }

  // More than a sum over words: what bears the words as its name comes first, the shorter the rest
  // of the name the better, and a page before its sections. The package comes last, unless asked
  // for as code is written; so do errata and bibliography, which repeat what a chapter shows.
  function weigh(entry, score, wanted, query) {
    const code = /[\p{Ll}_.][\p{Lu}_.]/u.test(query) && entry.title.split(".").includes(query.trim());
    const named = /^\p{Lu}/u.test(entry.title.split(".").pop()) && entry.names === stems(wanted); // a class
    if (entry.kind === "api" && !code) return named ? 100 : score / 20;
    if (`${entry.names} `.includes(`${stems(wanted)} `)) {
      if (entry.kind === "claim") score = 30; // equal names are equally good
      score += 50 + (100 * stems(wanted).length) / entry.names.length + (entry.where ? 0 : 80);
    }
    score += 5 * Math.log2(`${entry.words} `.split(`${wanted} `).length);
    return /\/(errata|bibliography)/.test(entry.url) ? score / 4 : score;
  }

  function find(query) {
    const quoted = /^\s*["“].+["”]\s*$/.test(query);
    const place = query.replace(LINE, "");
    const typed = (quoted ? asWords(query) : told(asWords(place))).split(" ").slice(1);
    const meant = typed.map((word) => corrected(word));
    const wanted = ` ${meant.join(" ")}`;
    const ask = (bool) =>
      index.search(meant.join(" "), {
        fields: { title: { boost: TITLE }, text: { boost: 1 } },
        bool,
        expand: true,
      });
    let hits = ask("AND");
    if (!hits.some(({ ref }) => entries[ref].kind !== "api")) hits = ask("OR");
    const scores = new Map(hits.map(({ ref, score }) => [Number(ref), weigh(entries[ref], score, wanted, query)]));
    const words = stemmed(wanted);
    const weight = rarity([...words]);
    for (const entry of entries) {
      const near = nearness(entry, words, weight);
      if (near > 0) scores.set(entry.id, (scores.get(entry.id) ?? 0) + ASKED * near);
    }
    let found = [...scores].map(([id, score]) => ({ entry: entries[id], score }));
    if (quoted) found = found.filter(({ entry }) => `${entry.words} `.includes(`${wanted} `));
    const { kind, verdict } = filter.elements;
    found = found.filter(
      ({ entry }) =>
        (!kind.value || entry.kind === kind.value) && (!verdict.value || entry.verdict === verdict.value),
    );
    // What is equally good goes by the order of the ledger and of the book.
    found.sort((a, b) => b.score - a.score || a.entry.id - b.entry.id);
    return { found: found.map(({ entry }) => entry), meant, typed };
  }

  function make(tag, attributes, ...content) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...content);
    return element;
  }

  // Around the first of the words; a formula is whole or left out.
  function excerpt(text, meant) {
    const at = Math.min(
      ...meant.map((word) => text.toLowerCase().indexOf(word)).filter((place) => place >= 0),
      text.length,
    );
    let start = at === text.length || at < EXCERPT / 2 ? 0 : text.lastIndexOf(" ", at - EXCERPT / 3) + 1;
    if (text.slice(0, start).split("$").length % 2 === 0) start = text.lastIndexOf("$", start - 1);
    let end = text.length <= start + EXCERPT ? text.length : text.lastIndexOf(" ", start + EXCERPT);
    if (text.slice(0, end).split("$").length % 2 === 0) end = text.indexOf("$", end) + 1;
    const parts = text.slice(start, end).split("$");
    return make(
      "p",
      { class: "excerpt" },
      start ? "… " : "",
      ...parts.flatMap((part, place) => (place % 2 ? [make("span", { class: "math" }, `\\(${part}\\)`)] : marked(part, meant))),
      end < text.length ? " …" : "",
    );
  }

  function marked(text, meant) {
    const words = meant.filter((word) => word.length > 1);
    if (words.length === 0) return [text];
    return text
      .split(new RegExp(`(${words.join("|")})`, "iu"))
      .map((part, place) => (place % 2 ? make("mark", {}, part) : part));
  }

  function item(entry, meant) {
    const link = make("a", { href: entry.url });
    link.append(
      ...entry.title
        .split("$")
        .map((part, place) => (place % 2 ? make("span", { class: "math" }, `\\(${part}\\)`) : part)),
    );
    const line = make("p", { class: `claim-${(entry.verdict ?? "").replaceAll(" ", "-")}` }, link, " ");
    if (entry.verdict) line.append(make("span", { class: "claim-verdict" }, entry.verdict));
    line.append(make("span", { class: "kind" }, ` ${KINDS[entry.kind]}${entry.where && `, in ${entry.where}`}`.replace(/\$/g, "")));
    return make("li", {}, line, excerpt(entry.text, meant));
  }

  async function show() {
    const { found, meant, typed } = field.value.trim() ? find(field.value) : { found: [], meant: [], typed: [] };
    list.replaceChildren(...found.slice(0, SHOWN).map((entry) => item(entry, meant)));
    const instead = typed
      .map((word, place) => (word === meant[place] ? "" : `No “${word}”; shown is “${meant[place]}”. `))
      .join("");
    const more = found.length > SHOWN ? `, the first ${SHOWN} shown` : "";
    status.textContent = typed.length ? `${instead}${found.length} places${more}` : "";
    await window.MathJax?.startup?.promise;
    window.MathJax?.typesetPromise?.([list]);
  }

  const verdicts = [...new Set(entries.map((entry) => entry.verdict).filter(Boolean))];
  filter.elements.verdict.append(...verdicts.map((verdict) => make("option", {}, verdict)));
  field.value = new URLSearchParams(location.search).get("q") ?? "";
  field.focus();
  field.select();
  field.addEventListener("input", show);
  field.form.addEventListener("submit", (event) => {
    event.preventDefault();
    show();
  });
  filter.addEventListener("input", show);
  show();
})();
