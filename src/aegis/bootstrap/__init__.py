"""Builds a gate from a configuration: the only place that knows all parts."""

from aegis.bootstrap.deployment import Deployment as Deployment
from aegis.bootstrap.deployment import open_deployment as open_deployment
from aegis.bootstrap.state import State as State
from aegis.bootstrap.state import open_state as open_state
