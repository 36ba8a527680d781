// The demonstration on the page about shares. It orders pretend work by the three policies; nothing is sent anywhere.
"use strict";

const UNITS = 120;
const SITES = [
  { key: "a", name: "Bakery" },
  { key: "b", name: "Library" },
  { key: "c", name: "Archive" },
];

// Each policy is given the sites that have work and what each has used so far, and answers which is next.
const POLICIES = {
  // The one that would have used the least, for its weight, once this request is done.
  fair: (busy) => busy.reduce((best, s) => (s.finish < best.finish ? s : best)),
  // The one that has waited for the most turns.
  robin: (busy) => busy.reduce((best, s) => (s.turns < best.turns ? s : best)),
  // The one with the greatest weight, always.
  strict: (busy) => busy.reduce((best, s) => (s.weight > best.weight ? s : best)),
};

const SAYINGS = {
  fair: "The dark mark is each busy site’s part by weight. Fair queuing meets it, however large a site’s requests are.",
  robin: "Turns are equal, so time isn’t: who asks for more in each request gets more. The dark mark is the part by weight.",
  strict: "The greatest weight goes first for as long as it has work. The others wait, and that may be for ever.",
};

const byId = (id) => document.getElementById(id);

function read() {
  return SITES.map((site) => {
    const weight = Number(byId(`${site.key}-weight`).value);
    const cost = Number(byId(`${site.key}-cost`).value);
    byId(`${site.key}-weight-now`).value = weight;
    byId(`${site.key}-cost-now`).value = cost;
    return { ...site, weight, cost, busy: byId(`${site.key}-busy`).checked, finish: cost / weight, turns: 0, got: 0 };
  });
}

function order(sites, policy) {
  const busy = sites.filter((s) => s.busy);
  const served = [];
  let used = 0;
  while (busy.length > 0 && used < UNITS) {
    const next = POLICIES[policy](busy);
    served.push(next);
    next.turns += 1;
    next.got += next.cost;
    next.finish += next.cost / next.weight;
    used += next.cost;
  }
  return { served, used };
}

function element(name, className, text) {
  const made = document.createElement(name);
  made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function draw() {
  const policy = document.querySelector("input[name=policy]:checked").value;
  const sites = read();
  const { served, used } = order(sites, policy);
  const weights = sites.filter((s) => s.busy).reduce((sum, s) => sum + s.weight, 0);

  byId("units").textContent = used;
  byId("ribbon").replaceChildren(
    ...served.map((site) => {
      const block = element("i", `hue-${site.key}`, site.name[0]);
      block.style.width = `calc(${site.cost} * 1.15rem + ${site.cost - 1} * 3px)`;
      return block;
    }),
  );
  byId("ribbon").setAttribute("aria-label", served.map((s) => s.name).join(", "));
  byId("got").replaceChildren(
    ...sites.map((site) => {
      const part = used === 0 ? 0 : (100 * site.got) / used;
      const row = element("div", `hue-${site.key}`);
      const track = element("span", "track");
      const fill = element("span", "fill");
      fill.style.width = `${part}%`;
      track.append(fill);
      if (site.busy) {
        const mark = element("span", "mark");
        mark.style.left = `${(100 * site.weight) / weights}%`;
        track.append(mark);
      }
      const turns = site.turns === 1 ? "1 turn" : `${site.turns} turns`;
      row.append(element("b", "", site.name), track, element("span", "", `${Math.round(part)} % · ${turns}`));
      return row;
    }),
  );
  byId("saying").textContent = used === 0 ? "Nobody has work, so the core sleeps." : SAYINGS[policy];
}

byId("demo").hidden = false;
document.querySelector("#demo form").addEventListener("input", draw);
draw();
