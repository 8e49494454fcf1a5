#!/usr/bin/env node
console.log('aegis-guard');
