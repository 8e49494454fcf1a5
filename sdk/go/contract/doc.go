// Package contract holds what every hook of this SDK has to do, run over the released packages, a scripted model and a
// real gateway. It has no code of its own.
package contract
