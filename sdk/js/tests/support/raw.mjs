// A server that says exactly what a test wants it to say.
import { createServer } from 'node:net';

/** Serve raw answers: `answer(request, index)` gives bytes or text to send, after which the connection closes. */
export async function rawServer(answer) {
  const requests = [];
  const sockets = new Set();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.on('close', () => sockets.delete(socket));
    let data = Buffer.alloc(0);
    socket.on('data', async (chunk) => {
      data = Buffer.concat([data, chunk]);
      for (;;) {
        const end = data.indexOf('\r\n\r\n');
        if (end < 0) return;
        const [first, ...fields] = data.toString('latin1', 0, end).split('\r\n');
        const headers = Object.fromEntries(fields.map((line) => line.split(/:\s*/, 2).map((part, i) => (i ? part : part.toLowerCase()))));
        const length = Number(headers['content-length'] ?? 0);
        if (data.length < end + 4 + length) return;
        const body = data.toString('utf8', end + 4, end + 4 + length);
        data = data.subarray(end + 4 + length);
        const [method, target] = first.split(' ');
        const request = { method, target, headers, body };
        requests.push(request);
        await answer(request, requests.length - 1, socket);
      }
    });
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    requests,
    close: () => {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}

const WORDS = { 200: 'OK' };

/** Send what a vector says is answered. */
export function send(socket, answer) {
  if ('raw' in answer) {
    socket.write(Buffer.from(answer.raw, 'base64'));
    if (answer.then !== 'hang') socket.end();
    return;
  }
  const lines = [`HTTP/1.1 ${answer.status} ${WORDS[answer.status] ?? 'Status'}`];
  for (const [name, value] of Object.entries(answer.headers)) lines.push(`${name}: ${value}`);
  lines.push(`content-length: ${Buffer.byteLength(answer.body)}`, 'connection: close', '', '');
  socket.end(lines.join('\r\n') + answer.body);
}
