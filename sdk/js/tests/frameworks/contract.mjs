// What every hook must do, over every way of its framework, with the real package and a model on loopback.
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';

import { auto, session, unhook } from 'aegis-guard';

import { allowed, blocked, changed, elsewhere, held, rewritten, ScriptedDecider, withheld } from '../support/decider.mjs';
import { scriptedModel } from '../support/model.mjs';
import { rawServer } from '../support/raw.mjs';

const id = (word) => `call_${word.padEnd(24, '0')}`; // as long as those of the providers
export const MAIL = { id: id('mail'), tool: 'send_email', arguments: { to: 'a@example.com' } };
export const READ = { id: id('read'), tool: 'read_file', arguments: { path: '/srv/a.txt' } };
const MORE = { id: id('more'), tool: 'read_file', arguments: { path: '/srv/b.txt' } };
const DONE = { text: 'done' };

/** One run: the model, and the tools whose bodies say that they ran. */
class World {
  ran = [];
  failing = {};

  constructor(model) {
    this.model = model;
    this.url = model.url;
  }

  /** The body of a tool. */
  run(tool, args) {
    this.ran.push([tool, args]);
    if (this.failing[tool]) throw new Error(this.failing[tool]);
    return { send_email: 'sent', read_file: `text of ${args.path}` }[tool];
  }

  tools() {
    return this.ran.map(([tool]) => tool).sort();
  }
}

async function withModel(turns, use) {
  const model = await scriptedModel(turns);
  try {
    return await use(new World(model));
  } finally {
    model.close();
  }
}

/**
 * Run the contract over the ways of a framework.
 *
 * `ways` maps a name to `{ drive(world), ids, runs }`: `drive` leads an agent with the tools of the world to its end and
 * gives its last words; `ids` says that the framework passes the model's ids, `runs` that it runs the bodies itself, and
 * `words` that it tells the model what a body throws.
 * `hook` puts the hook on.
 */
export function contract(framework, ways, { hook = (options) => auto({ ...options, onUnhooked: 'warn' }) } = {}) {
  const hooked = async (options, turns, way, prepare = () => {}) => {
    await hook(options);
    try {
      return await withModel([...turns, DONE], async (world) => {
        prepare(world);
        assert.equal(await way.drive(world), 'done');
        return world;
      });
    } finally {
      unhook();
    }
  };
  const quiet = (t) => t.mock.method(console, 'error', () => {});

  for (const [name, way] of Object.entries(ways)) {
    const { ids = true, runs = true } = way;
    describe(`${framework}: ${name}`, () => {
      const both = [{ text: 'let me', calls: [MAIL, READ] }];

      test('allowed calls run once under one decision about their arguments', async () => {
        const decider = new ScriptedDecider();
        const world = await hooked({ decider }, both, way);
        assert.deepEqual(world.tools(), ['read_file', 'send_email']);
        assert.deepEqual(decider.decided.map((call) => call.tool).sort(), ['read_file', 'send_email']);
        for (const call of decider.decided) {
          const [, args] = world.ran.find(([tool]) => tool === call.tool);
          assert.deepEqual(args, call.arguments);
          if (ids) assert.equal(call.callId, call.tool === MAIL.tool ? MAIL.id : READ.id);
        }
        assert.match(world.model.resultOf(MAIL), /sent/);
        assert.match(world.model.resultOf(READ), /text of/);
        assert.ok(!world.model.asked.some((one) => Object.keys(one.headers).some((header) => header.startsWith('x-aegis'))));
      });

      test('a refused call does not run, and the model is told', async () => {
        const decider = new ScriptedDecider({ rules: { send_email: blocked } });
        const world = await hooked({ decider }, both, way);
        assert.deepEqual(world.tools(), ['read_file']);
        assert.match(world.model.resultOf(MAIL), /`send_email` was not run: the script says block \(reason: attack_detected\)/);
        assert.match(world.model.resultOf(READ), /text of/);
      });

      test('where every call is refused none runs, and the run goes on or ends with the refusal', async () => {
        const decider = new ScriptedDecider({ rules: { send_email: blocked, read_file: blocked } });
        await hook({ decider });
        try {
          await withModel([...both, DONE], async (world) => {
            assert.match(await way.drive(world), /done|was not run/);
            assert.deepEqual(world.ran, []);
          });
        } finally {
          unhook();
        }
      });

      test('good, bad and good at once stay independent', async () => {
        const decider = new ScriptedDecider({ rules: { send_email: blocked } });
        const world = await hooked({ decider }, [{ text: 'let me', calls: [READ, MAIL, MORE] }], way);
        assert.deepEqual(world.tools(), ['read_file', 'read_file']);
        assert.match(world.model.resultOf(READ), /a\.txt/);
        assert.match(world.model.resultOf(MORE), /b\.txt/);
        assert.match(world.model.resultOf(MAIL), /was not run/);
      });

      test('a held call waits and runs once after its approval', async () => {
        const decider = new ScriptedDecider({ rules: { send_email: held }, resolve: allowed });
        const world = await hooked({ decider }, both, way);
        assert.deepEqual(world.tools(), ['read_file', 'send_email']);
        assert.deepEqual(decider.waited.map((call) => call.tool), ['send_email']);
      });

      test('a held call that is denied, and one that nobody waits for, do not run', async () => {
        for (const options of [{ onApproval: 'wait' }, { onApproval: 'block' }, { onApproval: 'defer' }]) {
          const decider = new ScriptedDecider({ rules: { send_email: held }, resolve: blocked });
          const world = await hooked({ decider, ...options }, both, way);
          assert.deepEqual(world.tools(), ['read_file'], options.onApproval);
          assert.match(world.model.resultOf(MAIL), /was not run/);
        }
      });

      test('changed arguments are what runs', async () => {
        const decider = new ScriptedDecider({ rules: { send_email: changed({ to: 'b@example.com' }) } });
        const world = await hooked({ decider }, both, way);
        assert.equal(world.ran.find(([tool]) => tool === 'send_email')[1].to, 'b@example.com');
      });

      test('a result is observed before the model reads it', async () => {
        const secret = (asked) => (JSON.stringify(asked.result).includes('a.txt') ? withheld() : undefined);
        const world = await hooked({ decider: new ScriptedDecider({ result: secret }) }, both, way);
        assert.match(world.model.resultOf(READ), /the result was withheld: the script withholds it/);
        assert.ok(!JSON.stringify(world.model.asked.slice(1)).includes('text of'), 'the text reached the model');
        const masking = (asked) => (JSON.stringify(asked.result).includes('a.txt') ? rewritten('masked')() : undefined);
        const other = await hooked({ decider: new ScriptedDecider({ result: masking }) }, both, way);
        assert.match(other.model.resultOf(READ), /masked/);
        assert.ok(!JSON.stringify(other.model.asked.slice(1)).includes('text of'), 'the text reached the model');
      });

      test('a result is observed once, however often the conversation repeats it', async () => {
        const decider = new ScriptedDecider();
        await hooked({ decider }, [...both, { text: 'again', calls: [MORE] }], way);
        const results = decider.observed.filter((one) => !one.further);
        assert.equal(results.length, 3);
        assert.equal(new Set(results.map((one) => one.decisionId)).size, 3);
      });

      test('a decision about another call, and an error of the decider, are refusals', async (t) => {
        quiet(t);
        const broken = () => {
          throw new TypeError('broken');
        };
        for (const rule of [elsewhere, broken]) {
          const decider = new ScriptedDecider({ rules: { send_email: rule } });
          const world = await hooked({ decider }, both, way);
          assert.deepEqual(world.tools(), ['read_file']);
        }
      });

      test('with the gateway gone, slow, limiting, failing or talking nonsense no body runs', async (t) => {
        quiet(t);
        const say = (text) => (_, __, socket) => socket.end(text);
        const answer = (status, body = '') => say(`HTTP/1.1 ${status} x\r\ncontent-length: ${body.length}\r\nconnection: close\r\n\r\n${body}`);
        const modes = {
          gone: null,
          slow: () => {},
          limiting: answer(429),
          failing: answer(500),
          nonsense: say('nonsense'),
          'an empty yes': answer(200, '{}'),
          'a foreign yes': answer(200, '{"decision":"allow"}'),
        };
        for (const [mode, behave] of Object.entries(modes)) {
          const server = await rawServer(behave ?? (() => {}));
          if (behave === null) server.close();
          try {
            await hook({ url: server.url, timeout: mode === 'slow' ? 0.05 : 5 });
            await withModel([...both, DONE], async (world) => {
              assert.match(await way.drive(world), /done|was not run/);
              assert.deepEqual(world.ran, [], mode);
            });
          } finally {
            unhook();
            server.close();
          }
        }
      });

      test('calls are made in the session of the host', async () => {
        const decider = new ScriptedDecider();
        await hook({ decider });
        try {
          await withModel([...both, DONE], async (world) => {
            await session('s-1', {}, () => way.drive(world));
            assert.deepEqual(new Set(decider.decided.map((call) => call.session)), new Set(['s-1']));
          });
        } finally {
          unhook();
        }
      });

      if (runs) {
        test('what a body throws is observed before the model reads it', async () => {
          const secret = (asked) => (JSON.stringify(asked.result).includes('hunter2') ? withheld() : undefined);
          const decider = new ScriptedDecider({ result: secret });
          await hook({ decider });
          try {
            await withModel([...both, DONE], async (world) => {
              world.failing = { read_file: 'the password is hunter2' };
              await way.drive(world).catch(() => {});
              assert.ok(!JSON.stringify(world.model.asked).includes('hunter2'));
              if (way.words ?? true) assert.ok(decider.observed.some((one) => JSON.stringify(one.result).includes('hunter2')));
            });
          } finally {
            unhook();
          }
        });
      }

      test('unhooked, everything is as it was', async () => {
        const decider = new ScriptedDecider();
        await hook({ decider });
        unhook();
        await withModel([...both, DONE], async (world) => {
          assert.equal(await way.drive(world), 'done');
          assert.deepEqual(world.tools(), ['read_file', 'send_email']);
          assert.deepEqual(decider.decided, []);
        });
      });
    });
  }
}
