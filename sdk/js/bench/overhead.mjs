// What the client costs beside the raw round trip: the same decision over the same socket, in turns. Needs a built `dist`.
import { createConnection } from 'node:net';

import { Client } from 'aegis-guard';

import { gateway } from '../tests/support/gateway.mjs';

const ROUNDS = Number(process.env.ROUNDS ?? 2_000);
const AT_ONCE = 500;
const gate = await gateway();
const client = new Client(gate.socket, { apiKey: gate.apiKey });
const path = gate.socket.replace('unix://', '');
const socket = createConnection(path);
let waiting;
let taken = '';
socket.on('data', (data) => {
  taken += data.toString('latin1');
  const end = taken.indexOf('\r\n\r\n');
  if (end < 0) return;
  const length = Number(/content-length: (\d+)/i.exec(taken)[1]);
  if (taken.length < end + 4 + length) return;
  JSON.parse(taken.slice(end + 4));
  taken = '';
  waiting();
});
const call = (number) => ({ tool: 'read_file', arguments: { path: `/srv/report-${number}.txt` }, callId: `bench-${number}` });
const raw = (number) => {
  const { tool, arguments: args, callId } = call(number);
  const body = JSON.stringify({ tool, arguments: args, call_id: callId });
  const head = `POST /v1/decisions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${gate.apiKey}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n`;
  return new Promise((done) => {
    waiting = done;
    socket.write(head + body);
  });
};
const timed = async (work) => {
  const cpu = process.cpuUsage();
  const begun = process.hrtime.bigint();
  await work();
  const spent = process.cpuUsage(cpu);
  return [Number(process.hrtime.bigint() - begun) / 1e6, (spent.user + spent.system) / 1e3];
};
const median = (numbers) => numbers.toSorted((a, b) => a - b)[numbers.length >> 1];
const raws = [];
const ours = [];
for (let round = 0; round < ROUNDS; round += 1) {
  const pair = [() => raw(2 * round), () => client.decide(call(2 * round + 1))];
  const [first, second] = round % 2 ? pair.toReversed() : pair;
  const [a, b] = [await timed(first), await timed(second)];
  const [ofRaw, ofOurs] = round % 2 ? [b, a] : [a, b];
  if (round < ROUNDS / 10) continue; // until the code is compiled
  raws.push(ofRaw);
  ours.push(ofOurs);
}
const at = (list, place) => list.map((one) => one[place]);
const beyond = raws.map((one, index) => ours[index][0] - one[0]);
const [many] = await timed(async () => {
  const decided = await Promise.all(Array.from({ length: AT_ONCE }, (_, index) => client.decide(call(1_000_000 + index))));
  if (!decided.every((one) => one.allowed)) throw new Error('a decision of many was refused');
});
console.log(
  JSON.stringify({
    raw_ms: median(at(raws, 0)),
    client_ms: median(at(ours, 0)),
    beyond_ms: median(beyond),
    beyond_cpu_ms: median(at(ours, 1)) - median(at(raws, 1)),
    at_once: AT_ONCE,
    at_once_ms: many,
  }),
);
socket.destroy();
client.close();
await gate.stop();
