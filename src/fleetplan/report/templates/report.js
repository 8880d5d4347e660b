"use strict";
// Draws each chart of the page from the JSON beside it. Colours are CSS variables, so light, dark and print need no redraw.
(function () {
  const config = {
    background: "transparent",
    font: getComputedStyle(document.body).fontFamily, // by its name: labels are measured with it
    view: { stroke: null },
    padding: 2,
    axis: {
      labelColor: "var(--ink-2)", titleColor: "var(--ink-2)", gridColor: "var(--line)", domainColor: "var(--line-2)",
      tickColor: "var(--line-2)", labelFontSize: 12, titleFontSize: 12, titleFontWeight: 500, titlePadding: 8,
      labelPadding: 4, tickSize: 4, labelOverlap: "greedy",
    },
    axisX: { grid: false, tickCount: 6, labelFlush: true },
    axisY: { domain: false, ticks: false, tickCount: 5 },
    legend: {
      labelColor: "var(--ink)", titleColor: "var(--ink-2)", labelFontSize: 12, titleFontSize: 12, titleFontWeight: 500,
      orient: "top", direction: "horizontal", symbolStrokeWidth: 2, columnPadding: 14, padding: 0, offset: 8,
      labelLimit: 220,
    },
    range: { category: [1, 2, 3, 4, 5, 6].map((i) => `var(--s${i})`) },
    text: { color: "var(--ink)" },
  };
  function show(figure) {
    const place = figure.querySelector(".plot");
    const source = document.getElementById(figure.dataset.chart);
    const narrow = place.clientWidth < 460;
    const spec = JSON.parse(source.textContent);
    const named = (spec.encoding ?? spec.layer?.[0]?.encoding)?.y?.type === "nominal"; // bars with long names
    const fitted = { ...config, legend: { ...config.legend, columns: narrow ? (named ? 1 : 2) : 0 } };
    if (narrow && named) {
      const axis = (spec.encoding ?? spec.layer[0].encoding).y.axis;
      Object.assign(axis, { labelLimit: Math.round(place.clientWidth * 0.46), labelFontSize: 10.5 });
      fitted.axisX = { ...config.axisX, tickCount: 4 };
    }
    return window
      .vegaEmbed(place, spec, {
        renderer: "svg", actions: false, config: fitted, tooltip: { theme: "custom" },
      })
      .then(() => {
        const svg = place.querySelector("svg");
        svg.setAttribute("aria-hidden", "true"); // the figure's label says what it shows
        figure.dataset.state = "drawn";
      })
      .catch((error) => {
        figure.dataset.state = "failed";
        place.textContent = "This chart could not be drawn; the table beneath it holds its figures.";
        console.error(error);
      });
  }
  document.documentElement.dataset.charts = "drawing";
  async function showAll() {
    for (const figure of document.querySelectorAll("figure[data-chart]")) await show(figure);
    document.documentElement.dataset.charts = "drawn";
  }
  showAll();
  // A table wider than its frame fades out at the side where there is more of it, and a line beneath says so.
  function hint(frame) {
    const left = frame.scrollLeft > 1;
    const right = frame.scrollLeft + frame.clientWidth < frame.scrollWidth - 1;
    const more = [left && "left", right && "right"].filter(Boolean).join(" ");
    if (more) frame.dataset.more = more;
    else delete frame.dataset.more;
    const note = frame.nextElementSibling;
    if (note?.classList.contains("more")) note.hidden = frame.scrollWidth <= frame.clientWidth + 1;
  }
  const watch = new ResizeObserver((entries) => entries.forEach((entry) => hint(entry.target)));
  for (const frame of document.querySelectorAll(".scroll")) {
    watch.observe(frame); // a folded table has its width once it is opened
    frame.addEventListener("scroll", () => hint(frame), { passive: true });
  }
  // A printed page shows what is folded on the screen.
  let folded = [];
  window.addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const each of folded) each.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const each of folded) each.open = false;
  });
})();
