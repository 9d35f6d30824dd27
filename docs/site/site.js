// What Material leaves out for keyboards and screen readers, on each page.
document$.subscribe(() => {
  document.querySelector(".md-search").setAttribute("aria-label", "Search");
  // Tables that are wider than the window scroll within boxes of their own.
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap")) box.tabIndex = 0;
});
