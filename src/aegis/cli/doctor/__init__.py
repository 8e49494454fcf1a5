"""What `aegis doctor` looks at; every check reads and none of them repairs."""
