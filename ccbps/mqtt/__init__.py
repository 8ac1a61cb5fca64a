"""The running broker behind a real MQTT server: service, clients, and a server in process."""

from typing import TYPE_CHECKING

from ccbps.loading import need, on_first_use

need("ccbps.mqtt", "mqtt")

if TYPE_CHECKING or not on_first_use(__name__):
    from ccbps.mqtt.client import MqttClient as MqttClient
    from ccbps.mqtt.connection import MqttUrl as MqttUrl
    from ccbps.mqtt.server import LocalServer as LocalServer
    from ccbps.mqtt.service import MqttService as MqttService
