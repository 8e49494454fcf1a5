"""The proxies of model APIs: what an answer proposes is decided first, what a client claims is checked."""
