"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, from = document) => Array.from(from.querySelectorAll(selector));
  root.classList.add("js");

  const theme = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const named = () => { theme.textContent = isDark() ? "Light" : "Dark"; };
  theme.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; named(); });
  dark.addEventListener("change", named);
  theme.hidden = false;
  named();

  // --- one sample after the other -------------------------------------------------------------------------
  const slider = document.getElementById("slider");
  const samples = all(".sample");
  const here = document.querySelector(".here");
  let shown = samples;
  const show = () => {
    const at = Math.min(Number(slider.value), shown.length - 1);
    samples.forEach((sample) => sample.classList.toggle("on", sample === shown[at]));
    const words = shown.length ? `${at + 1} of ${shown.length}` : "none";
    document.getElementById("number").textContent = words;
    const sample = shown[at];
    if (sample) slider.setAttribute("aria-valuetext", `${words}: ${sample.dataset.title}`);
    if (here) {
      here.toggleAttribute("hidden", !sample || !sample.dataset.x);
      if (sample && sample.dataset.x) {
        here.setAttribute("cx", sample.dataset.x);
        here.setAttribute("cy", sample.dataset.y);
      }
    }
  };
  const choose = (split) => {
    shown = samples.filter((sample) => !split || sample.dataset.split === split);
    if (!slider) return;
    slider.max = Math.max(0, shown.length - 1);
    slider.value = 0;
    slider.disabled = shown.length < 2;
    show();
  };
  if (slider) {
    slider.addEventListener("input", show);
    const play = document.getElementById("play");
    let timer = 0;
    const stop = () => { clearInterval(timer); timer = 0; play.textContent = "Play"; };
    play.addEventListener("click", () => {
      if (timer) return stop();
      play.textContent = "Pause";
      timer = setInterval(() => {
        slider.value = shown.length ? (Number(slider.value) + 1) % shown.length : 0;
        show();
      }, 500);
    });
    slider.addEventListener("pointerdown", stop);
    slider.addEventListener("keydown", stop);
    document.getElementById("steer").hidden = false;
  }
  choose("");

  // --- one split ------------------------------------------------------------------------------------------
  const filter = document.getElementById("split");
  if (filter) {
    document.getElementById("filter").hidden = false;
    filter.addEventListener("change", () => {
      const split = filter.value;
      all("[data-of]").forEach((part) => { part.hidden = part.dataset.of !== split; });
      all("[data-in]").forEach((part) => part.toggleAttribute("hidden", Boolean(split) && !part.dataset.in.split("\n").includes(split)));
      choose(split);
    });
  }

  // --- what a bar of a histogram says ---------------------------------------------------------------------
  const number = (value) => String(Number(value.toPrecision(6)));
  all(".bars").forEach((chart) => {
    const counts = chart.dataset.counts.split(",").map(Number);
    const first = Number(chart.dataset.first);
    const step = Number(chart.dataset.step);
    const ends = chart.nextElementSibling;
    const before = Array.from(ends.childNodes);
    const svg = chart.querySelector("svg");
    const mark = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    mark.setAttribute("class", "mark");
    mark.setAttribute("height", "100%");
    mark.setAttribute("width", 256 / counts.length);
    let at = -1;
    const tell = (bin) => {
      at = Math.max(0, Math.min(counts.length - 1, bin));
      mark.setAttribute("x", at * 256 / counts.length);
      svg.append(mark);
      const unit = chart.dataset.unit ? ` ${chart.dataset.unit}` : "";
      ends.textContent = `${number(first + at * step)} to ${number(first + (at + 1) * step)}${unit}: ${counts[at].toLocaleString("en")}`;
    };
    const leave = () => { mark.remove(); ends.replaceChildren(...before); at = -1; };
    chart.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      tell(Math.floor((event.clientX - box.left) / box.width * counts.length));
    });
    chart.addEventListener("pointerleave", leave);
    chart.addEventListener("blur", leave);
    chart.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      const next = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (next) {
        const peers = all(".bars", chart.closest("ul"));
        const peer = peers[peers.indexOf(chart) + next];
        if (peer) peer.focus();
        event.preventDefault();
      }
      if (by) { tell(at < 0 ? (by > 0 ? 0 : counts.length - 1) : at + by); event.preventDefault(); }
    });
  });
})();
