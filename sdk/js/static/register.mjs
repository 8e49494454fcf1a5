import { start } from './register.js';

await start();
