// Which rollouts fit what is asked for, and in which order.

// words, and what stands in quotation marks as it is
function terms(text) {
  return [...text.toLowerCase().matchAll(/"([^"]+)"|[^\s"]+/g)].map((match) => match[1] ?? match[0]);
}

// everything in the table that is text, in small letters
const haystacks = table.rollouts.id.map((id, place) => [
  id,
  table.groups.example[table.rollouts.group[place]],
  table.reasons[table.rollouts.reason[place]],
  table.rollouts.cause[place],
].join("\n").toLowerCase());

function* texts(value) {
  if (typeof value === "string") yield value;
  else if (typeof value === "number") yield String(value);
  else if (value && typeof value === "object") {
    for (const [key, inner] of Object.entries(value)) {
      if (!Array.isArray(value)) yield key;
      yield* texts(inner);
    }
  }
}

function fits(place, wanted) {
  const { rollouts } = table;
  if (wanted.ended === "good" && !rollouts.ok[place]) return false;
  if (wanted.ended === "bad" && rollouts.ok[place]) return false;
  if (wanted.ended === "found" && !rollouts.findings[place]) return false;
  if (wanted.reason !== "" && rollouts.reason[place] !== Number(wanted.reason)) return false;
  return wanted.group === null || rollouts.group[place] === wanted.group;
}

function sorted(places, by) {
  const { rollouts } = table;
  const columns = { seconds: rollouts.seconds, tokens: rollouts.tokens };
  const [name, direction] = by.split(":");
  const column = name.startsWith("reward-") ? rollouts.rewards[Number(name.slice(7))] : columns[name];
  if (!column) return places;
  const sign = direction === "down" ? -1 : 1;
  // those without a value come last, whatever the direction
  return places.sort((a, b) => (column[a] === null) - (column[b] === null) || sign * (column[a] - column[b]) || a - b);
}

function found(wanted) {
  const words = terms(wanted.text);
  const places = [];
  for (let place = 0; place < haystacks.length; place += 1) {
    if (fits(place, wanted) && words.every((word) => haystacks[place].includes(word))) places.push(place);
  }
  return sorted(places, wanted.sort);
}

// the same in all that rollouts said; tells as it goes, and stops when it is no longer wanted
async function foundInside(wanted, { progress, current }) {
  const words = terms(wanted.text);
  const places = [];
  for (let chunk = 0; chunk < chunks.length; chunk += 1) {
    const last = firsts[chunk + 1] ?? rolloutCount;
    let any = false;
    for (let place = firsts[chunk]; place < last && !any; place += 1) any = fits(place, wanted);
    if (any) {
      const outcomes = await outcomesOf(chunk);
      if (!current()) return null;
      outcomes.forEach((outcome, offset) => {
        const place = firsts[chunk] + offset;
        if (!fits(place, wanted)) return;
        const text = [...texts(outcome)].join("\n").toLowerCase() + "\n" + haystacks[place];
        if (words.every((word) => text.includes(word))) places.push(place);
      });
    }
    progress(chunk + 1, chunks.length);
  }
  return sorted(places, wanted.sort);
}
