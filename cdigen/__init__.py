"""cdigen makes a host's GPUs available to containers by writing CDI specifications.

``docs/contributing/architecture.md`` describes the folders of the package.
"""

__version__ = "0.1.0"

# The address of the documentation, as in [project.urls] of pyproject.toml. 'make generated' writes it into
# each file that contains it. Messages and help texts name man pages or the URL of a page, because an
# installation may have no documentation.
DOCUMENTATION = "https://cdigen.example/docs"


def page_url(page: str) -> str:
    """Return the URL of docs/PAGE.md."""
    return f"{DOCUMENTATION}/{page}"
