module github.com/aegis-guard/aegis/sdk/go/langchain

go 1.24.4

require (
	github.com/aegis-guard/aegis/sdk/go v0.0.0
	github.com/tmc/langchaingo v0.1.14
)

require (
	github.com/dlclark/regexp2 v1.10.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/pkoukk/tiktoken-go v0.1.6 // indirect
	go.starlark.net v0.0.0-20230302034142-4b1e35fe2254 // indirect
	golang.org/x/sys v0.35.0 // indirect
)

replace github.com/aegis-guard/aegis/sdk/go => ..
