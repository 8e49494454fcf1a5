"""The log's verifier with the rules of missions: what an export proves about who was sent to do what."""
