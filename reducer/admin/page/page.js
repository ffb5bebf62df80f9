"use strict";
// Polls /status every second and shows the result. All values are inserted as text, never as markup: clients choose the names of tenants.
const kChartSamples = 120;  // two minutes
const kSlowWindow = 10;  // samples over which a slow rank's share of the time is computed
const kMaxSlowRanks = 6;
const $ = (id) => document.getElementById(id);
const history = { in: [], out: [] };
let samples = [];  // the last kSlowWindow replies: {at, status}

const make = (tag, text, name) => {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  return element;
};
const setText = (id, text) => { $(id).textContent = text; };
const at = (object, path) => path.split(".").reduce((o, key) => (o === null || o === undefined ? undefined : o[key]), object);
const number = (object, path) => { const n = Number(at(object, path)); return Number.isFinite(n) ? n : 0; };

const rateText = (bytes) => {
  const bits = 8 * bytes;
  return bits >= 1e9 ? (bits / 1e9).toFixed(2) + " Gb/s" : bits >= 1e6 ? (bits / 1e6).toFixed(1) + " Mb/s" : (bits / 1e3).toFixed(0) + " kb/s";
};
const sizeText = (bytes) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; bytes >= 1024 && unit + 1 < units.length; ++unit) bytes /= 1024;
  return bytes.toFixed(unit === 0 || bytes >= 100 ? 0 : 1) + " " + units[unit];
};
const timeText = (ms) => {
  if (ms < 1000) return ms.toFixed(0) + " ms";
  const s = ms / 1000;
  if (s < 120) return s.toFixed(1) + " s";
  return s < 7200 ? (s / 60).toFixed(0) + " min" : s < 172800 ? (s / 3600).toFixed(1) + " h" : (s / 86400).toFixed(1) + " days";
};
const countText = (n) => n.toLocaleString("en");

const drawLine = (svg, values) => {
  const top = Math.max(...values, 1);
  const x = (i) => 240 - (values.length - 1 - i) * (240 / (kChartSamples - 1));
  const points = values.map((v, i) => x(i).toFixed(1) + " " + (54 - 50 * v / top).toFixed(1)).join(" L");
  const path = (d, name) => {
    const p = document.createElementNS("http://www.w3.org/2000/svg", "path");
    p.setAttribute("d", d);
    p.setAttribute("class", name);
    return p;
  };
  svg.replaceChildren(path("M" + x(0).toFixed(1) + " 56 L" + points + " L240 56 Z", "area"), path("M" + points, "stroke"));
};

const showRate = (name, bytes, known) => {
  setText(name, known ? rateText(bytes) : "");
  if (!known) return;
  history[name].push(bytes);
  if (history[name].length > kChartSamples) history[name].shift();
  setText(name + "-peak", "peak " + rateText(Math.max(...history[name])));
  drawLine($(name + "-line"), history[name]);
};

const showList = (id, entries, none) => {
  const rows = [];
  for (const [name, value] of entries) rows.push(make("dt", name), make("dd", value));
  if (rows.length === 0) rows.push(make("dt", none, "quiet"), make("dd", ""));
  $(id).replaceChildren(...rows);
};
const counts = (object) => Object.entries(object || {}).sort((a, b) => b[1] - a[1]).map(([name, n]) => [name.replaceAll("_", " "), countText(Number(n))]);

const findSession = (status, id) => (status.session_list || []).find((s) => s.id === id);

// How long the session waited for each rank within the window, worst first.
const slowRanks = (session, earlier, ms) => {
  const before = new Map(((earlier && earlier.slow_ranks) || []).map((r) => [r.rank, r.waited_ms]));
  return (session.slow_ranks || [])
    .map((r) => ({ rank: r.rank, total: r.waited_ms, share: earlier && ms > 0 ? Math.min(1, Math.max(0, r.waited_ms - (before.get(r.rank) || 0)) / ms) : 0 }))
    .sort((a, b) => b.share - a.share || b.total - a.total).slice(0, kMaxSlowRanks);
};

// The rank with the most severe findings; the reducer lists it first.
const sickestRank = (session) => {
  const rank = ((session.health || {}).ranks || [])[0];
  if (!rank || !rank.findings) return "";
  return Object.entries(rank.findings).map(([kind, n]) => kind.replace("_", "-") + " in " + n + (n === 1 ? " chunk" : " chunks"))
    .reduce((text, entry) => text + (text ? ", " : "rank " + rank.rank + ": ") + entry, "");
};

const showSessions = (now, last, first) => {
  const rows = [];
  for (const s of now.status.session_list || []) {
    const row = make("tr");
    row.append(make("td", String(s.id).slice(0, 8)), make("td", s.tenant, "tenant"), make("td", s.state));
    row.lastChild.previousSibling.title = String(s.tenant);
    row.firstChild.title = String(s.id);
    row.append(make("td", s.joined < s.ranks ? s.joined + " of " + s.ranks : String(s.ranks), "n"));
    const previous = last && findSession(last.status, s.id);
    row.append(make("td", previous ? rateText(1000 * Math.max(0, s.served_bytes - previous.served_bytes) / (now.at - last.at)) : "", "n"));
    const waits = number(s, "waited_ms") >= 1000;
    const missing = (s.missing || []).slice(0, 8).join(", ") + (s.missing_ranks > 8 ? " and " + (s.missing_ranks - 8) + " more" : "");
    const absent = number(s, "absent_ranks") > 0 ? " (not connected: " + (s.absent || []).slice(0, 8).join(", ") + ")" : "";
    const stall = (s.stalls || [])[0];
    const stalled = stall ? " (no byte acknowledged to or from rank " + stall.rank + " for " + timeText(stall.stalled_ms) + ")" : "";
    row.append(make("td", (waits ? "rank " + missing + ", " + timeText(s.waited_ms) : "") + absent + stalled, waits || absent || stall ? "waits" : ""));
    const slow = make("td");
    for (const r of slowRanks(s, first && findSession(first.status, s.id), first ? now.at - first.at : 0)) {
      const entry = make("span", undefined, r.share >= 0.1 ? "slow now" : "slow");
      entry.append("rank " + r.rank + " ", make("b", (100 * r.share).toFixed(0) + "%"), " ", make("span", timeText(r.total), "quiet"));
      slow.append(entry);
    }
    const sick = sickestRank(s);
    row.append(slow, make("td", sick, sick ? "waits" : ""));
    rows.push(row);
  }
  if (rows.length === 0) {
    const row = make("tr"), cell = make("td", "none", "quiet");
    cell.colSpan = 8;
    row.append(cell);
    rows.push(row);
  }
  $("sessions").replaceChildren(...rows);
  const open = number(now.status, "sessions.open");
  setText("session-count", open + (open > (now.status.session_list || []).length ? ", some not shown" : ""));
};

const showModels = (now, last) => {
  const models = now.status.models || [];
  const rows = models.map((m) => {
    const before = last && (last.status.models || []).find((other) => other.name === m.name);
    const rate = (...keys) => (before ? keys.reduce((sum, key) => sum + 1000 * Math.max(0, m[key] - before[key]) / (now.at - last.at), 0) : 0);
    const row = make("tr");
    row.append(make("td", m.name, "tenant"), make("td", m.mode), make("td", m.rule), make("td", countText(m.version), "n"));
    row.append(make("td", m.owned + ", " + m.copied + " of " + m.shards, "n"), make("td", before ? rate("steps").toFixed(2) : "", "n"));
    row.append(make("td", counts(m.pushes).map((entry) => entry.join(" ")).join(", ")));
    row.append(make("td", before ? rateText(rate("delta_bytes")) : "", "n"), make("td", before ? rateText(rate("pull_bytes", "copy_bytes")) : "", "n"));
    row.append(make("td", countText(m.staged), "n"), make("td", timeText(m.step_age_ms), "n"), make("td", m.unavailable || "", m.unavailable ? "waits" : ""));
    return row;
  });
  $("models").replaceChildren(...rows);
  $("models-section").hidden = rows.length === 0;
  const memory = "store.memory.";
  setText("models-memory", sizeText(number(now.status, memory + "reserved_bytes")) + " of " + sizeText(number(now.status, memory + "limit_bytes")) + " reserved, "
    + countText(number(now.status, "store.clients")) + " clients");
};

const badge = (text, kind) => {
  setText("state", text);
  $("state").className = "badge " + kind;
};

const show = (now) => {
  const status = now.status;
  const last = samples[samples.length - 1], first = samples[0];
  const seconds = last ? (now.at - last.at) / 1000 : 0;
  const rate = (path) => (last && seconds > 0 ? Math.max(0, number(status, path) - number(last.status, path)) / seconds : 0);
  const waiting = number(status, "waits.sessions");
  if (status.draining) badge("draining", "warn");
  else if (waiting > 0) badge("ready, " + waiting + (waiting === 1 ? " session is" : " sessions are") + " waiting for a rank", "warn");
  else badge("ready", "good");
  document.title = "Sluice reducer " + status.host;
  setText("host", status.host + ", " + status.address + (status.pool ? ", pool " + status.pool : ""));
  setText("identity", "id " + status.id + ", version " + status.version + ", up " + timeText(1000 * number(status, "uptime_seconds")));
  showRate("in", rate("data.bytes_in"), last !== undefined);
  showRate("out", rate("data.bytes_out"), last !== undefined);
  setText("operations", rate("data.operations").toFixed(1) + " /s");
  setText("chunks", countText(Math.round(rate("data.chunks"))) + " /s");
  const packets = rate("data.packets_in") + rate("data.packets_out");
  setText("lost", packets > 0 ? (100 * Math.min(1, (rate("data.lost_packets_in") + rate("data.lost_packets_out")) / packets)).toFixed(1) + "%" : "0%");
  setText("cpus", (rate("cpu.user_seconds") + rate("cpu.system_seconds")).toFixed(2));
  const sum = (list) => (list || []).reduce((a, b) => a + b, 0);
  const busy = last && seconds > 0 ? (sum(status.lane_busy_seconds) - sum(last.status.lane_busy_seconds)) / seconds / Math.max(1, number(status, "lanes")) : 0;
  setText("busy", (100 * Math.min(1, Math.max(0, busy))).toFixed(0) + "%");
  setText("lanes", "of " + number(status, "lanes"));
  $("busy-bar").value = Math.min(1, Math.max(0, busy));
  const used = number(status, "memory.reserved_bytes"), limit = number(status, "memory.limit_bytes");
  setText("memory", sizeText(used));
  setText("memory-limit", "of " + sizeText(limit));
  $("memory-bar").value = limit > 0 ? used / limit : 0;
  const tcp = number(status, "transports.tcp.connections"), rdma = number(status, "transports.rdma.connections");
  setText("connections", countText(tcp + rdma));
  setText("rdma", rdma > 0 ? countText(rdma) + " over RDMA" : "TCP");
  showSessions(now, last, first);
  showModels(now, last);
  showList("ended", [["completed", countText(number(status, "sessions.completed"))], ["moved to other reducers", countText(number(status, "sessions.moved"))],
    ["failed", countText(number(status, "sessions.failed"))]], "none");
  showList("refused", counts(status.refused), "none");
  showList("closed", counts(status.closed), "none");
  showList("tenants", (status.tenants || []).map((t) => [t.tenant, sizeText(t.served_bytes)]), "none");
};

const poll = async () => {
  const begun = performance.now();
  try {
    const reply = await fetch("/status", { cache: "no-store" });
    if (!reply.ok) throw new Error(await reply.text());
    const status = await reply.json();
    const now = { at: 1000 * number(status, "uptime_seconds"), status }; // the reducer's clock: a reply may be delayed or cached
    const last = samples[samples.length - 1];
    if (last && (last.status.id !== status.id || now.at < last.at)) samples = []; // another process runs at this address
    if (samples.length === 0 || now.at > last.at) {
      show(now);
      samples.push(now);
      if (samples.length > kSlowWindow) samples.shift();
    }
    document.body.classList.remove("stale");
  } catch (error) {
    badge("not responding", "bad");
    document.body.classList.add("stale");
  }
  setTimeout(poll, Math.max(0, 1000 - (performance.now() - begun)));
};
poll();
