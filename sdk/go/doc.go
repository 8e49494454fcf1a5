// Package aegis asks an Aegis gateway before an agent's tool runs, and runs only what was allowed.
//
// A [Client] speaks to the gateway; a [Guard] decides, waits and observes around a tool's body; [Protect] wraps a
// function in it. Everything fails closed: an answer that is not plainly a decision on this very call is a refusal.
//
// The package needs nothing beside the standard library. Hooks for model and tool libraries are modules of their own
// below this one, so that a program downloads only what it uses.
package aegis
