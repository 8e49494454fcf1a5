// A reporter that counts the cases of every way of the contract: one line of JSON for each.
export default async function* count(events) {
  let counted = { cases: 0, passed: 0 };
  for await (const { type, data } of events) {
    if (type !== 'test:pass' && type !== 'test:fail') continue;
    if (data.details?.type !== 'suite') {
      counted.cases += 1;
      counted.passed += type === 'test:pass' ? 1 : 0;
    } else if (data.nesting === 0) {
      yield `${JSON.stringify({ suite: data.name, file: data.file, ...counted })}\n`;
      counted = { cases: 0, passed: 0 };
    }
  }
}
