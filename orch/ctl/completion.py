"""`orchctl completion SHELL`: a script that asks this command for what may stand at the cursor.

The scripts know nothing themselves: `candidates` does, from the same definitions as the parsers.
"""

from __future__ import annotations

import argparse

EXAMPLES = """
orchctl completion bash > /etc/bash_completion.d/orchctl
orchctl completion zsh > "${fpath[1]}/_orchctl"
orchctl completion fish > ~/.config/fish/completions/orchctl.fish
"""
_BASH = r"""# bash completion of orchctl
_orchctl() {
    local current="${COMP_LINE:0:COMP_POINT}" line
    local -a words
    # The words up to the cursor, apart at blanks only: names hold colons, slashes and equals signs.
    read -r -a words <<< "$current"
    [[ "$current" == *[[:space:]] ]] && words+=("")
    local typed="${words[${#words[@]}-1]}" shown="${COMP_WORDS[COMP_CWORD]}"
    local cut="${typed%"$shown"}"
    COMPREPLY=()
    while IFS=$'\t' read -r line _; do
        COMPREPLY+=("${line#"$cut"}")
    done < <("${words[0]}" __complete "${words[@]:1}" 2>/dev/null)
    [[ "${COMPREPLY[0]-}" == *[=/,] ]] && compopt -o nospace 2>/dev/null
    return 0
}
complete -o default -F _orchctl orchctl
"""
_ZSH = r"""#compdef orchctl
# zsh completion of orchctl
_orchctl() {
    local -a found
    local line
    for line in "${(@f)$(${words[1]} __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        [[ -n "$line" ]] && found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done
    if (( ${#found} )); then _describe 'orchctl' found; else _files; fi
}
compdef _orchctl orchctl
"""
_FISH = r"""# fish completion of orchctl
function __orchctl_candidates
    set -l words (commandline -opc) (commandline -ct)
    $words[1] __complete $words[2..-1] 2>/dev/null
end
complete -c orchctl -a '(__orchctl_candidates)'
"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="the shell")


def run(args: argparse.Namespace) -> int:
    print(SCRIPTS[args.shell], end="")
    return 0
