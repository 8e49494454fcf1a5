// What `auto()` hooks among the packages of a folder, as one line of JSON: run there with `node --input-type=module`.
import { auto } from 'aegis-guard';

const { hooked } = await auto({ url: 'http://127.0.0.1:1', onUnhooked: 'warn' });
console.log(JSON.stringify(hooked));
