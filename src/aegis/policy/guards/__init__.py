"""Guards read a case (call, facts, session, principal) and hand in one report each."""
