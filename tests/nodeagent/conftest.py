"""The real container runtime and a served agent, for the tests that need them."""

from tests.conftest_runtime import real_runtime as real_runtime
from tests.fakes.agent import agent as agent
from tests.fakes.agent import delegated as delegated
from tests.fakes.agent import reviews as reviews
from tests.fakes.agent import sampler as sampler
from tests.fakes.agent import unserved as unserved
