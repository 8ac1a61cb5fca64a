#!/bin/sh
# Give a client a password at mosquitto.
#
#     add_client.sh NAME PASSWORDS
#
# PASSWORDS is mosquitto's password file. The password itself goes into NAME.password, for the
# client. It is never an argument, which everybody on the machine could see.
set -euC
umask 077
name=$1 passwords=$2
if ! command -v mosquitto_passwd > /dev/null; then
    echo "mosquitto_passwd is not installed; it comes with mosquitto" >&2
    exit 1
fi
if [ -e "$passwords" ] && cut -d: -f1 "$passwords" | grep -qxF -e "$name"; then
    echo "$name has a password in $passwords" >&2
    exit 2
fi
new=$(mktemp "$passwords.XXXXXX")
trap 'rm -f "$new"' EXIT
trap 'exit 1' HUP INT TERM
head -c 24 /dev/urandom | base64 | tr +/ -_ > "$name.password"
# Whatever fails from here on leaves no password behind.
trap 'rm -f "$new" "$name.password"' EXIT
printf '%s:%s\n' "$name" "$(cat "$name.password")" >| "$new"
mosquitto_passwd -U "$new"
cat "$new" >> "$passwords"
trap 'rm -f "$new"' EXIT
