# Completion of rv for bash 4.4 or newer. `rv completion bash` prints this.

_rv() {
    local IFS=$'\n' word=${COMP_WORDS[COMP_CWORD]}
    local -a answer
    case $word in = | :) word= ;; esac
    mapfile -t answer < <("${1/#\~\//$HOME/}" __complete bash "$word" "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
    COMPREPLY=("${answer[@]:1}")
    case ${answer[0]-} in
        files)
            compopt -o filenames
            mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$word")
            ;;
        folders)
            compopt -o filenames
            mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -d -- "$word")
            ;;
    esac
}

complete -F _rv rv
