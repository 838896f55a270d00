// The data in the page: the table of all rollouts, and chunks that are unpacked when they are needed.

const KEPT_CHUNKS = 8;

// a page on which nothing ran has no table
const block = document.getElementById("table");
const table = block ? JSON.parse(block.textContent) : { rollouts: { id: [], rewards: [] } };
const chunks = [...document.querySelectorAll("script[type='application/gzip']")];

// place of each chunk's first rollout
const firsts = [];
let rolloutCount = 0;
for (const chunk of chunks) {
  firsts.push(rolloutCount);
  rolloutCount += Number(chunk.dataset.count);
}

const unpacked = new Map();

async function unpack(chunk) {
  const packed = Uint8Array.from(atob(chunks[chunk].textContent), (character) => character.charCodeAt(0));
  const plain = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(plain).json();
}

// a promise of a chunk's outcomes; the last used ones are kept
function outcomesOf(chunk) {
  const found = unpacked.get(chunk) ?? unpack(chunk);
  unpacked.delete(chunk);
  unpacked.set(chunk, found);
  if (unpacked.size > KEPT_CHUNKS) unpacked.delete(unpacked.keys().next().value);
  return found;
}

function chunkOf(place) {
  let low = 0;
  let high = firsts.length - 1;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (firsts[middle] <= place) low = middle;
    else high = middle - 1;
  }
  return low;
}

async function outcomeAt(place) {
  const chunk = chunkOf(place);
  return (await outcomesOf(chunk))[place - firsts[chunk]];
}

// what an example's rollouts come to
function groupFacts() {
  const { groups, rollouts, components } = table;
  const facts = groups.position.map(() => ({ ok: 0, ended: 0, values: components.map(() => []) }));
  rollouts.group.forEach((group, place) => {
    const fact = facts[group];
    fact.ended += 1;
    fact.ok += rollouts.ok[place];
    rollouts.rewards.forEach((column, component) => {
      if (column[place] !== null) fact.values[component].push(column[place]);
    });
  });
  return facts;
}

function mean(values) {
  return values.length ? values.reduce((sum, value) => sum + value / values.length, 0) : null;
}
