"""The running broker behind a real MQTT server: service, clients, and a server in process."""

from ccbps.mqtt.client import MqttClient
from ccbps.mqtt.connection import MqttUrl
from ccbps.mqtt.server import LocalServer
from ccbps.mqtt.service import MqttService

__all__ = ["LocalServer", "MqttClient", "MqttService", "MqttUrl"]
