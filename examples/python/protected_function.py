import aegis


@aegis.protect
def find_customer(name: str) -> str:
    return f"one customer called {name}"


print(find_customer("Ann"))
try:
    find_customer("x' OR '1'='1' --")
except aegis.ToolCallBlocked as blocked:
    print(f"not run: {blocked.decision.reason.value}")
