module github.com/aegis-guard/aegis/sdk/go

go 1.24
