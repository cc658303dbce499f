# Environments of Python on a login node: looked for, built, removed when nobody uses them.
# An answer is lines `rv-answer WORD VALUE`; whatever else is printed is the site's.
# shellcheck shell=bash

answer() { printf 'rv-answer %s %s\n' "$1" "$2"; }

# load_modules MODULE…: as the job will. 46: one cannot be loaded.
load_modules() {
  local file
  [ $# -gt 0 ] || return 0
  if [ "$(type -t module)" != function ]; then
    # shellcheck source=/dev/null
    for file in /etc/profile.d/*{lmod,modules}*.sh; do [ ! -r "$file" ] || . "$file"; done
  fi
  module load "$@" >&2 || return 46
}

# whole_path PATH DIRECTORY: ~ is the home here, and what is relative is below the directory.
whole_path() {
  # shellcheck disable=SC2088 # the ~ is text: it was quoted, or came from a file
  case $1 in
    "~") printf '%s\n' "$HOME" ;;
    "~/"*) printf '%s\n' "$HOME/${1#"~/"}" ;;
    /*) printf '%s\n' "${1%/}" ;;
    ./*) whole_path "${1#./}" "$2" ;;
    *) printf '%s\n' "$2/${1%/}" ;;
  esac
}

# find_venv PATH DIRECTORY: answer where it is; else what lies beside it.
find_venv() {
  local path other
  path=$(whole_path "$1" "$2")
  if [ -x "$path/bin/python" ]; then
    answer path "$path"
    return
  fi
  answer missing "$path"
  for other in "$path"/* "${path%/*}"/* "${path%/*}"/.venv; do
    [ ! -x "$other/bin/python" ] || answer near "$other"
  done
}

# find_image PATH DIRECTORY: answer where the file or folder of a container's image is; else what lies beside it.
find_image() {
  local path other
  path=$(whole_path "$1" "$2")
  if [ -r "$path" ]; then
    answer path "$path"
    return
  fi
  answer missing "$path"
  for other in "${path%/*}"/*.{sif,sqsh,sqfs,squashfs}; do
    [ ! -r "$other" ] || answer near "$other"
  done
}

# conda_folders: name each folder that is an environment of conda, the base ones too.
conda_folders() {
  local base folder found folders=("$HOME/.conda/envs")
  for base in "${CONDA_EXE:+${CONDA_EXE%/*/*}}" "$(dirname -- "$(dirname -- "$(readlink -f "$(command -v conda)")")")" \
    "$MAMBA_ROOT_PREFIX" "$HOME"/{mini,ana}conda3 "$HOME"/{miniforge,mambaforge}3 "$HOME"/{mambaforge,micromamba} /opt/{conda,miniconda3,miniforge3}; do
    case $base in /*) ;; *) continue ;; esac
    [ ! -d "$base/conda-meta" ] || printf '%s\n' "$base"
    folders+=("$base/envs")
  done
  IFS=: read -r -a base <<<"$CONDA_ENVS_PATH:$CONDA_ENVS_DIRS"
  for folder in "${base[@]}" "${folders[@]}"; do
    for found in "$folder"/*; do [ ! -d "$found/conda-meta" ] || printf '%s\n' "$found"; done
  done
  cat "$HOME/.conda/environments.txt" 2>/dev/null
}

# find_conda NAME_OR_PATH DIRECTORY: answer where it is; else which there are.
find_conda() {
  local path found
  case $1 in
    */* | "~")
      path=$(whole_path "$1" "$2")
      [ ! -d "$path/conda-meta" ] || { answer path "$path"; return; }
      ;;
    *)
      while IFS= read -r found; do
        [ -d "$found/conda-meta" ] || continue
        if [ "${found##*/}" = "$1" ] || { [ "$1" = base ] && [ -d "$found/condabin" ]; }; then
          answer path "$found"
          return
        fi
      done < <(conda_folders)
      path=$1
      ;;
  esac
  answer missing "$path"
  while IFS= read -r found; do [ ! -d "$found/conda-meta" ] || answer near "$found"; done < <(conda_folders | sort -u)
}

# choose_python REQUEST: which tool builds, and with which Python, in tool, python and version.
choose_python() {
  python='' version=''
  if command -v uv >/dev/null; then
    tool=uv
    python=${1:-python3}
    version=$(uv python find --no-project "$python" 2>/dev/null) && version=$(python_version "$version")
    version=${version:-$python}
  else
    tool=pip
    python=python3
    [[ ! $1 =~ ^3\.[0-9]+$ ]] || ! command -v "python$1" >/dev/null || python=python$1
    version=$(python_version "$python") || return 48
  fi
}

python_version() { "$1" -c 'import platform; print(platform.python_implementation(), platform.python_version(), platform.machine())' 2>/dev/null; }

# look_for_built ROOT DIGEST REQUEST: answer the key of the environment of a lock file, and where it is.
look_for_built() {
  local tool python version shelf key
  choose_python "$3" || return 48
  shelf=$1/.venvs-$EUID
  mkdir -p -- "$shelf" || return 1
  [ -O "$shelf" ] && [ ! -L "$shelf" ] || return 45
  key=$(printf '%s\n' "$2" "$version" | sha256sum | cut -c 1-20)
  answer key "$key"
  answer tool "$tool"
  answer version "$version"
  answer shelf "$shelf"
  ! is_whole "$shelf/$key" || ! touch -- "$shelf/$key/used" || answer path "$shelf/$key/venv"
}

# is_whole FOLDER: whether it was built, and its Python was not taken away since.
is_whole() { [ -e "$1/ready" ] && [ -x "$1/venv/bin/python" ]; }

# build_venv ROOT SHELF KEY KIND REQUEST SENT SECONDS: build it from the files in SENT, where nobody has.
# Its files hold its path, so that it is built where it stays; `ready` is written last. Whoever builds
# keeps the lock until the last of its programs has ended: after a kill nobody else writes there then.
build_venv() {
  local home=$2/$3 tool python version code
  exec 9>"$2/.$3.lock" || return 1
  flock -w "$7" 9 || return 47
  if is_whole "$home"; then
    rm -rf -- "$6"
    answer there "$home/venv"
    return
  fi
  choose_python "$5" || return 48
  rm -rf -- "$home"
  mkdir -- "$home" && mv -T -- "$6" "$home/project" || return 1
  (cd -- "$home/project" && install_into "$home/venv" "$4") >"$home/log" 2>&1 </dev/null
  code=$?
  if [ $code -eq 0 ] && [ -x "$home/venv/bin/python" ] && touch -- "$home/used" "$home/ready"; then
    answer built "$home/venv"
  else
    tail -n 8 "$home/log" >&2
    # On a full disk the log holds nothing: this says so.
    head -c 1M /dev/zero >"$home/room"
    rm -rf -- "$home"
    return 1
  fi
  remove_unused "$1" "$2" "$3"
}

# install_into VENV KIND: in the folder of the lock file, by the tool and the Python that were chosen.
install_into() {
  local hashes=()
  unset PYTHONPATH PYTHONHOME VIRTUAL_ENV CONDA_PREFIX PIP_TARGET PIP_PREFIX PIP_REQUIRE_VIRTUALENV
  export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1
  [ "$2" != hashed ] || hashes=(--require-hashes)
  case $tool:$2 in
    uv:uv) UV_PROJECT_ENVIRONMENT=$1 uv sync --frozen --no-install-project --python "$python" ;;
    uv:pylock) uv venv --no-project --python "$python" "$1" && uv pip sync --preview --python "$1/bin/python" pylock.toml ;;
    uv:*) uv venv --no-project --python "$python" "$1" && uv pip install --python "$1/bin/python" "${hashes[@]}" -r requirements.txt ;;
    *) "$python" -m venv "$1" && "$1/bin/python" -m pip install --no-input "${hashes[@]}" -r requirements.txt ;;
  esac
}

# remove_unused ROOT SHELF NEWEST: those that were not used for 30 days, but for what a race needs that is
# not over; and what was cut off while it was sent.
remove_unused() {
  local used home key
  find "$2" -mindepth 1 -maxdepth 1 -type d -name '.*' -mmin +120 -exec rm -rf -- {} +
  while IFS= read -r used; do
    home=${used%/*} key=${home##*/}
    if [ "$key" = "$3" ] || is_needed "$1" "$key"; then continue; fi
    (
      exec 9>"$2/.$key.lock" && flock -n 9 || exit
      mv -T -- "$home" "$2/.old.$key" && rm -rf -- "$2/.old.$key"
    )
  done < <(find "$2" -mindepth 2 -maxdepth 2 -name used -mtime +30)
}

# is_needed ROOT KEY: whether a race's record names it, and the race is not over.
is_needed() {
  local record
  while IFS= read -r record; do
    [ -e "${record%/*}/verdict.json" ] || [ -e "${record%/*}/ended" ] || return 0
  done < <(grep -lsF "/$2/venv" "$1"/*/race.json)
  return 1
}
