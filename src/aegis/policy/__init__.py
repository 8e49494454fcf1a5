"""Running a policy: facts, guards in order, one decision."""
