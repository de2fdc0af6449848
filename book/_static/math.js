// Sets every formula of the page. Runs after katex.min.js, both deferred.
for (const box of document.querySelectorAll("span.math, div.math")) {
  const place = box.querySelector(":scope > .tex") ?? box;
  katex.render(place.textContent, place, { displayMode: box.tagName === "DIV", throwOnError: false, strict: false });
}
