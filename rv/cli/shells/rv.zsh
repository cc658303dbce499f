#compdef rv
# Completion of rv for zsh. `rv completion zsh` prints this.

_rv() {
    local -a answer values
    local kind line
    answer=("${(@f)$(${~words[1]} __complete zsh "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
    kind=$answer[1]
    for line in "${(@)answer[2,-1]}"; do
        # A colon parts a value from what it means; a tab does so in the answer.
        values+=("${${line%%$'\t'*}//:/\\:}${${(M)line:#*$'\t'*}:+:${line#*$'\t'}}")
    done
    (( $#values )) && _describe -V rv values
    case $kind in
        files) _files ;;
        folders) _files -/ ;;
    esac
}

if [[ $funcstack[1] == _rv ]]; then
    _rv "$@"
else
    compdef _rv rv
fi
